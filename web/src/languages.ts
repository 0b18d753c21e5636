// The language of a file by its name; all of them are in the bundle, so nothing is fetched later.

import { cpp } from "@codemirror/lang-cpp";
import { css } from "@codemirror/lang-css";
import { go } from "@codemirror/lang-go";
import { html } from "@codemirror/lang-html";
import { java } from "@codemirror/lang-java";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { php } from "@codemirror/lang-php";
import { python } from "@codemirror/lang-python";
import { rust } from "@codemirror/lang-rust";
import { yaml } from "@codemirror/lang-yaml";
import { LanguageDescription, LanguageSupport, StreamLanguage, type StreamParser } from "@codemirror/language";
import { ruby } from "@codemirror/legacy-modes/mode/ruby";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { toml } from "@codemirror/legacy-modes/mode/toml";

function stream<State>(parser: StreamParser<State>): LanguageSupport {
  return new LanguageSupport(StreamLanguage.define(parser));
}

function describe(name: string, extensions: string, support: () => LanguageSupport, alias = ""): LanguageDescription {
  return LanguageDescription.of({
    name,
    alias: alias.split(" ").filter(Boolean),
    extensions: extensions.split(" "),
    load: () => Promise.resolve(support()),
  });
}

const SUPPORTS = new Map<string, () => LanguageSupport>();
const CACHE = new Map<string, LanguageSupport>();

function language(name: string, extensions: string, support: () => LanguageSupport, alias = ""): LanguageDescription {
  SUPPORTS.set(name, support);
  return describe(name, extensions, () => supportOf(name)!, alias);
}

export const LANGUAGES: LanguageDescription[] = [
  language("Python", "py pyi pyw", python, "py python3"),
  language("JavaScript", "js mjs cjs jsx", () => javascript({ jsx: true }), "js jsx"),
  language("TypeScript", "ts mts cts", () => javascript({ typescript: true }), "ts"),
  language("TSX", "tsx", () => javascript({ typescript: true, jsx: true })),
  language("JSON", "json jsonl webmanifest", json),
  language("HTML", "html htm xhtml vue svelte jinja j2", () => html()),
  language("CSS", "css scss less", css),
  language("Markdown", "md markdown mdx", () => markdown({ codeLanguages: LANGUAGES }), "md"),
  language("Rust", "rs", rust, "rs"),
  language("Go", "go", go, "golang"),
  language("Java", "java kt scala", java, "kotlin"),
  language("C++", "c cc cpp cxx h hh hpp hxx ino cs", cpp, "c cpp"),
  language("PHP", "php phtml", () => php()),
  language("YAML", "yaml yml", yaml, "yml"),
  language("Shell", "sh bash zsh ksh env", () => stream(shell), "sh bash shell console zsh"),
  language("Ruby", "rb rake gemspec", () => stream(ruby), "rb"),
  language("TOML", "toml lock cfg ini", () => stream(toml)),
];

const NAMES: Record<string, string> = {
  Makefile: "Shell",
  Dockerfile: "Shell",
  Gemfile: "Ruby",
  Rakefile: "Ruby",
  ".gitignore": "Shell",
};

function supportOf(name: string): LanguageSupport | null {
  const known = CACHE.get(name) ?? SUPPORTS.get(name)?.();
  if (known) CACHE.set(name, known);
  return known ?? null;
}

/** Name and support of a path's language; plain text has none. */
export function languageOf(path: string): { name: string; support: LanguageSupport | null } {
  const file = path.slice(path.lastIndexOf("/") + 1);
  const name = NAMES[file] ?? LanguageDescription.matchFilename(LANGUAGES, file)?.name;
  return name ? { name, support: supportOf(name) } : { name: "Plain text", support: null };
}
