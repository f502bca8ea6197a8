// Asks the endpoint that this page came from.

// The key lives in this variable and nowhere else: storage of the browser outlives the tab, or is copied to others.
let key = "";

export function useKey(text) {
  key = text;
}

export function hasKey() {
  return key !== "";
}

// Why a request was not answered; `errors` are the fields at fault, as the endpoint's problem documents (RFC 9457) say.
export class Problem extends Error {
  constructor(status, title, detail, errors = []) {
    super(detail);
    this.status = status;
    this.title = title;
    this.errors = errors;
  }
}

async function problemOf(response) {
  if (response.headers.get("Content-Type")?.startsWith("application/problem+json")) {
    const told = await response.json();
    return new Problem(told.status, told.title, told.detail, told.errors);
  }
  return new Problem(response.status, response.statusText, "what answered is not the endpoint; a proxy in between?");
}

// Returns the answer to a question, or to a GET where there is no body.
export async function ask(path, body, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const request = { headers, signal, cache: "no-store", credentials: "omit" };
  if (body) Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`v1/${path}`, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "Not reached", "the endpoint does not answer; is it still running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response.json();
}
