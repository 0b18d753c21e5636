// Small things around the DOM: elements, icons, a signal.

type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;
export type Child = Node | string | null | undefined | false;

/** An element: attributes by name, `onclick` and its kin as listeners, children in order. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  fill(element, ...children);
  return element;
}

/** Replace what an element holds. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
}

const PATHS = {
  chevron: "M6 4l4 4-4 4",
  close: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5L14 14",
  check: "M3.5 8.5l3 3 6-7",
  up: "M8 12V4M4.5 7.5L8 4l3.5 3.5",
  down: "M8 4v8M4.5 8.5L8 12l3.5-3.5",
  sidebar: "M2.5 3.5h11v9h-11zM6 3.5v9",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  alert: "M8 5.2v3.6M8 11v.1M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  undo: "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M3 6.5l3-3M3 6.5l3 3",
  agent: "M2.5 3.5h11v9h-11zM5 6.5L6.8 8 5 9.5M8.5 10h2.5",
  back: "M9.5 4l-4 4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
} as const;

export type IconName = keyof typeof PATHS;

/** A line icon that takes the colour of the text around it. */
export function icon(name: IconName): SVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Listeners that are told when something happened. */
export class Signal<T = void> {
  private readonly listeners = new Set<(value: T) => void>();

  listen(listener: (value: T) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  emit(value: T): void {
    for (const listener of [...this.listeners]) listener(value);
  }
}

export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
