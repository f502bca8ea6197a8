// The hypergraph around the hits as four columns: topics hold episodes, episodes facts, facts turns. Nodes are buttons,
// so that they have the browser's own focus, wrapping and contrast; only the lines between them are drawn.

import { element } from "./elements.js";

const { ascending, linkHorizontal, mean, path, select: pick } = globalThis.d3;

const LEVELS = ["topic", "episode", "fact", "turn"];
const TITLES = { topic: "Topics", episode: "Episodes", fact: "Facts", turn: "Turns" };
const MOST_HITS = 20; // the endpoint tells what is around so many
const BULGE = 36; // pixels, of an arrow between two nodes of a column

// Draws the graph into a place and returns what marks a node, and all that is tied to it, as the one that is looked at.
export function drawHypergraph(place, answer, select) {
  const nodes = nodesOf(answer);
  const links = linksOf(answer, nodes);
  const columns = inOrder(nodes, links);
  const buttons = new Map(columns.flat().map((node) => [node.id, nodeButton(node, select)]));
  const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  lines.setAttribute("aria-hidden", "true"); // the buttons say the same by the order of their columns and their details
  const lists = columns.map((column, at) =>
    element(
      "div",
      { class: `column ${LEVELS[at]}` },
      element("h3", {}, TITLES[LEVELS[at]]),
      element("ol", {}, column.map((node) => element("li", {}, buttons.get(node.id)))),
    ));
  place.replaceChildren(lines, ...lists);
  placeArrow(lines);
  const drawn = pick(lines).selectAll("path.link").data(links).join("path")
    .attr("class", (link) => `link ${link.relation ?? "member"}`)
    .attr("marker-end", (link) => (link.relation ? "url(#arrow)" : null));
  const redraw = () => {
    if (!lines.isConnected) return watch.disconnect(); // another question was asked since
    pick(lines).attr("width", 0).attr("height", 0); // else the place is no smaller than what was drawn before
    pick(lines).attr("width", place.scrollWidth).attr("height", place.scrollHeight);
    drawn.attr("d", (link) => lineBetween(buttons.get(link.source), buttons.get(link.target)));
  };
  const watch = new ResizeObserver(redraw);
  watch.observe(place);
  place.onkeydown = (event) => moveFocus(event, columns, links, buttons);
  const first = columns.findLast((column) => column.length);
  if (first) buttons.get(first[0].id).tabIndex = 0;
  return (id) => markNode(id, drawn, links, buttons);
}

function nodesOf(answer) {
  const nodes = new Map(answer.hits.slice(0, MOST_HITS).map((hit) =>
    [hit.turn_id, { id: hit.turn_id, level: "turn", label: hit.text, rank: hit.rank, size: 0 }]));
  for (const one of answer.hypergraph) {
    if (!nodes.has(one.id)) {
      nodes.set(one.id, { id: one.id, level: one.level, label: one.title || one.text, rank: null, size: one.size });
    }
  }
  return nodes;
}

function linksOf(answer, nodes) {
  const holds = answer.hypergraph.flatMap((one) =>
    one.members.filter((id) => nodes.has(id)).map((id) => ({ source: one.id, target: id, relation: null })));
  const ways = new Map();
  for (const hit of answer.hits) {
    hit.path.forEach((step, at) => {
      const target = hit.path[at + 1]?.id ?? hit.turn_id;
      if (nodes.has(step.id) && nodes.has(target)) {
        ways.set(`${step.id} ${target}`, { source: step.id, target, relation: step.relation });
      }
    });
  }
  return [...holds, ...ways.values()];
}

// Sorts each column by where what its nodes hold stands in the columns to the right, so that few lines cross; turns
// stand by rank, and behind them those that are only passed.
function inOrder(nodes, links) {
  const place = new Map();
  const columns = LEVELS.map((level) => [...nodes.values()].filter((node) => node.level === level));
  for (const column of columns.toReversed()) {
    const heights = new Map(column.map((node) => {
      const held = links.filter((link) => link.source === node.id && link.relation === null && place.has(link.target));
      return [node.id, node.rank ?? mean(held, (link) => place.get(link.target)) ?? Infinity];
    }));
    column.sort((one, other) => ascending(heights.get(one.id), heights.get(other.id)) || ascending(one.id, other.id));
    column.forEach((node, at) => place.set(node.id, (at + 0.5) / column.length));
  }
  return columns;
}

function nodeButton(node, select) {
  const kind = node.rank ? `hit ${node.rank}` : node.level;
  return element(
    "button",
    {
      type: "button",
      class: `node ${node.level}`,
      tabindex: -1,
      title: node.label,
      "aria-label": `${kind}: ${node.label}`,
      "aria-pressed": "false",
      click: () => select(node.id),
    },
    node.rank ? element("span", { class: "name" }, `${node.rank}`) : null,
    element("span", {}, node.label),
    node.size > 1 ? element("span", { class: "size", title: "members" }, `${node.size}`) : null,
  );
}

function placeArrow(lines) {
  pick(lines).append("defs").append("marker").attr("id", "arrow").attr("viewBox", "0 0 8 8").attr("refX", 7)
    .attr("refY", 4).attr("markerWidth", 7).attr("markerHeight", 7).attr("orient", "auto")
    .append("path").attr("d", "M0 0 8 4 0 8Z");
}

function lineBetween(from, to) {
  const [start, end] = [from, to].map((one) => ({
    left: one.offsetLeft, right: one.offsetLeft + one.offsetWidth, y: one.offsetTop + one.offsetHeight / 2,
  }));
  if (start.left < end.left) return linkHorizontal()({ source: [start.right, start.y], target: [end.left, end.y] });
  const line = path();
  line.moveTo(start.right, start.y);
  line.bezierCurveTo(start.right + BULGE, start.y, end.right + BULGE, end.y, end.right + 2, end.y);
  return line.toString();
}

function markNode(id, drawn, links, buttons) {
  const tied = new Set(buttons.has(id) ? [id] : []);
  // All above and all below, not their other members.
  for (const [here, there] of [["source", "target"], ["target", "source"]]) {
    const reached = [id];
    while (reached.length) {
      const one = reached.pop();
      for (const link of links) {
        if (link[here] === one && !tied.has(link[there])) {
          tied.add(link[there]);
          reached.push(link[there]);
        }
      }
    }
  }
  for (const [each, button] of buttons) {
    button.setAttribute("aria-pressed", each === id);
    button.classList.toggle("near", tied.has(each));
  }
  drawn.classed("near", (link) => tied.has(link.source) && tied.has(link.target));
  drawn.filter(".near").raise(); // above those that it crosses
}

// Up and down within a column; left and right along a line, if there is one, else to the column's first node.
function moveFocus(event, columns, links, buttons) {
  const here = columns.flat().find((node) => buttons.get(node.id) === event.target);
  if (!here) return;
  const column = columns[LEVELS.indexOf(here.level)];
  const to = {
    ArrowUp: () => column[column.indexOf(here) - 1],
    ArrowDown: () => column[column.indexOf(here) + 1],
    ArrowLeft: () => neighbour(here, -1, columns, links),
    ArrowRight: () => neighbour(here, 1, columns, links),
  }[event.key]?.();
  if (!to) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  buttons.get(to.id).tabIndex = 0;
  buttons.get(to.id).focus();
}

function neighbour(here, step, columns, links) {
  const next = columns[LEVELS.indexOf(here.level) + step] ?? [];
  const isTied = (node) => links.some((link) =>
    step > 0 ? link.source === here.id && link.target === node.id : link.target === here.id && link.source === node.id);
  return next.find(isTied) ?? next[0];
}
