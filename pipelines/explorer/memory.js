// One memory: what it says, the turns that it stands on, and the hyperedges that it belongs to or is.

import { element, facts } from "./elements.js";
import { link, shortened, sourceOf, span, textButton } from "./hits.js";
import { time } from "./format.js";

const MOST_MEMBERS = 12;

export function memoryView(memory, answerNames, select) {
  const names = new Map([...memory.sources.map((source) => [source.turn_id, shortened(source.text)]), ...answerNames]);
  return [
    element("h3", {}, element("span", { class: `level ${memory.level}` }, memory.level), memory.title ?? ""),
    element("p", { class: "whole" }, memory.text),
    element("dl", { class: "facts" }, facts([
      ["when", span(memory)],
      ["id", memory.id],
      ["namespace", memory.namespace],
    ])),
    memory.superseded_by
      ? element("p", { class: "warning" }, "Superseded by ", link(memory.superseded_by, names, select))
      : null,
    element("h4", {}, memory.level === "turn" ? "Source" : `Sources (${memory.sources.length})`),
    element("ol", { class: "sources" }, memory.sources.map((source) => sourceItem(source, memory, select))),
    memory.hyperedges.length ? element("h4", {}, "Hyperedges") : null,
    element("ul", { class: "edges" }, memory.hyperedges.map((edge) => edgeItem(edge, memory, names, select))),
  ].filter(Boolean);
}

function sourceItem(source, memory, select) {
  const said = element("p", { class: "head" }, time(source.said_at), element("strong", {}, source.speaker ?? ""));
  const where = element("p", { class: "source" }, sourceOf(source));
  // A turn's only source is itself, and its text is there already.
  const text = memory.level === "turn" ? null : textButton(source.turn_id, source.text, select);
  return element("li", {}, said, text, where);
}

function edgeItem(edge, memory, names, select) {
  const isThis = edge.id === memory.id;
  const some = edge.members.slice(0, MOST_MEMBERS);
  const more = edge.members.length - some.length;
  return element(
    "li",
    {},
    element("span", { class: `level ${edge.kind}` }, isThis ? `this ${edge.kind}` : edge.kind),
    isThis ? null : link(edge.id, names, select),
    element("span", { class: "note" }, `holds ${edge.members.length}: `),
    some.map((id) => link(id, names, select)),
    more ? element("span", { class: "note" }, ` and ${more} more`) : null,
  );
}
