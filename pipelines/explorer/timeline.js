// The strip above the results: how much of the namespace was said when, and when the hits were.

import { element } from "./elements.js";
import { count, day, minute } from "./format.js";

const { axisBottom, max, scaleLinear, scaleUtc, select: pick } = globalThis.d3;

const HEIGHT = 64; // pixels, of which the axis has AXIS
const AXIS = 20;
const SIDE = 12;

// Draws the strip into a place and returns what marks a hit as the one that is looked at.
export function drawTimeline(place, stats, hits, select) {
  const dated = hits.filter((hit) => hit.said_at !== null);
  if (!stats.timeline.length) {
    place.replaceChildren(element("p", { class: "note" }, "No turn of this namespace has a time."));
    return () => {};
  }
  const strip = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", told(stats, dated));
  place.replaceChildren(strip);
  let marked = null;
  const mark = (id) => {
    marked = id;
    const every = pick(strip).selectAll(".marks g").classed("selected", (hit) => hit.turn_id === marked);
    every.filter(".selected").raise(); // above others of the same day
  };
  const watch = new ResizeObserver(() => {
    if (!strip.isConnected) return watch.disconnect(); // another question was asked since
    draw(strip, place.clientWidth, stats, dated, select);
    mark(marked);
  });
  watch.observe(place);
  return mark;
}

// The same in words.
function told(stats, dated) {
  const days = [...new Set(dated.map((hit) => day(hit.said_at)))].sort();
  const span = `${count(stats.turns, "turn")} from ${day(stats.first_said_at)} to ${day(stats.last_said_at)}`;
  return days.length ? `${span}; hits of ${days.join(", ")}` : span;
}

function draw(strip, width, stats, dated, select) {
  const [first, last] = [new Date(stats.first_said_at), new Date(stats.last_said_at)];
  // A log of one moment is a point; a day around it gives the axis something to show.
  const around = first < last ? 0 : 43_200_000;
  const x = scaleUtc([+first - around, +last + around], [SIDE, width - SIDE]);
  const floor = HEIGHT - AXIS;
  const y = scaleLinear([0, max(stats.timeline)], [floor, 14]);
  const share = (x(last) - x(first)) / stats.timeline.length || 4;
  const picked = pick(strip).attr("width", width).attr("height", HEIGHT);
  picked.selectChildren().remove();
  picked.append("g").attr("class", "said").selectAll("rect").data(stats.timeline).join("rect")
    .attr("x", (_, at) => x(first) + at * share).attr("width", Math.max(1, share - 1))
    .attr("y", y).attr("height", (turns) => floor - y(turns));
  picked.append("g").attr("class", "axis").attr("transform", `translate(0,${floor})`)
    .call(axisBottom(x).ticks(Math.max(2, Math.floor(width / 110))).tickSizeOuter(0));
  const marks = picked.append("g").attr("class", "marks").selectAll("g").data(dated).join("g")
    .attr("transform", (hit) => `translate(${x(new Date(hit.said_at))},0)`)
    .on("click", (_, hit) => select(hit.turn_id));
  marks.append("line").attr("y1", 10).attr("y2", floor);
  marks.append("circle").attr("cy", 7).attr("r", 4.5);
  marks.append("title").text((hit) => `hit ${hit.rank}, ${minute(hit.said_at)}`);
}
