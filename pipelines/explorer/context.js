// The text that a prompt would be given, and what each of its statements stands on.

import { element, facts } from "./elements.js";
import { link } from "./hits.js";

export function contextView(context, names, select) {
  if (!context.text) return [element("p", { class: "note" }, "There is nothing to put into a prompt.")];
  return [
    element("dl", { class: "facts" }, facts([
      ["tokens", context.tokens],
      ["statements", context.citations.length],
      ["left out by the budget", context.left_out],
    ])),
    element("pre", { tabindex: 0, "aria-label": "Context" }, context.text),
    element("h4", {}, "Citations"),
    element("ol", { class: "citations" }, context.citations.map((one) =>
      element("li", { value: one.number }, `${one.day} `, one.turn_ids.map((id) => link(id, names, select))))),
  ];
}
