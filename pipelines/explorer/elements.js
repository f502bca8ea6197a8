// Builds elements. A string given as a child becomes a text node, so nothing that a log says is ever read as markup;
// no module of this page makes elements from strings in any other way, and the page's policy forbids it.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// Terms and what they are, such as counts; pairs whose value is null are left out.
export function facts(pairs) {
  return pairs
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, String(value))));
}

export function byId(id) {
  return document.getElementById(id);
}
