// How times, scores and ids are written. Times are shown in UTC, the log's own clock, never in the browser's zone.

import { element } from "./elements.js";

export function time(iso) {
  if (iso === null) return element("span", { class: "note" }, "time unknown");
  return element("time", { datetime: iso }, minute(iso));
}

export function day(iso) {
  return new Date(iso).toISOString().slice(0, 10);
}

export function minute(iso) {
  return new Date(iso).toISOString().slice(0, 16).replace("T", " ");
}

// Scores of a fusion are small and lie close together, so it is the digits that count that are kept.
export function score(value) {
  return Math.abs(value) >= 100 ? value.toFixed(1) : value.toPrecision(4);
}

export function count(value, one, several = `${one}s`) {
  return `${value.toLocaleString("en")} ${value === 1 ? one : several}`;
}
