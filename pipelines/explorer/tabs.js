// Tabs as the ARIA practices have them: one is in the order of focus, arrow keys lead to the others.

import { element } from "./elements.js";

// Fills a tab list with `[name, label]` pairs and puts a panel for each after it. Returns the panels by name, what
// shows one, and what changes a label.
export function tabs(list, title, pairs) {
  const panels = {};
  const buttons = {};

  function show(name) {
    for (const each of Object.keys(panels)) {
      const shown = each === name;
      panels[each].hidden = !shown;
      buttons[each].setAttribute("aria-selected", shown);
      buttons[each].tabIndex = shown ? 0 : -1;
    }
  }

  function move(event) {
    const names = Object.keys(buttons);
    const at = names.findIndex((name) => buttons[name] === event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names[(to + names.length) % names.length];
    show(name);
    buttons[name].focus();
  }

  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", title);
  list.addEventListener("keydown", move);
  let last = list;
  for (const [name, label] of pairs) {
    const [tab, panel] = [`${list.id}-${name}`, `${list.id}-${name}-panel`];
    buttons[name] = element("button", { type: "button", role: "tab", id: tab, "aria-controls": panel }, label);
    buttons[name].addEventListener("click", () => show(name));
    panels[name] = element("div", { role: "tabpanel", id: panel, "aria-labelledby": tab, tabindex: 0 });
    list.append(buttons[name]);
    last.after(panels[name]);
    last = panels[name];
  }
  show(pairs[0][0]);
  return { panels, show, label: (name, text) => buttons[name].replaceChildren(text) };
}
