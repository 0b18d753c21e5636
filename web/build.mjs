// Bundles src/ into the folder the server serves: `node build.mjs [folder]`. The same sources give the same bytes.
// third-party.txt holds the licences of the packages that are in the bundle, as they ask.
// manifest.json beside the bundle records the hashes of both; dev/check_web_bundle.py compares them.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../etude/server/static"));
const BESIDE_SRC = [".npmrc", "build.mjs", "package-lock.json", "package.json", "tsconfig.json"];
const BUILT = ["app.css", "app.js", "icon.svg", "index.html", "third-party.txt"];

await mkdir(target, { recursive: true });
const bundled = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.ts" },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) {
  await copyFile(join(here, "src", name), join(target, name));
}
await writeFile(join(target, "third-party.txt"), await licences(Object.keys(bundled.metafile.inputs)));
await writeFile(join(target, "manifest.json"), JSON.stringify(await manifest(), null, 2) + "\n");

async function licences(inputs) {
  const packages = new Set(inputs.map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean));
  const texts = [];
  for (const name of [...packages].sort()) {
    const folder = join(here, "node_modules", name);
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no licence file; look before it is bundled`);
    texts.push(`${name}\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`);
  }
  return texts.join("\n----------------------------------------\n\n");
}

async function manifest() {
  const inSrc = (await readdir(join(here, "src"))).map((name) => `src/${name}`);
  const sources = [...BESIDE_SRC, ...inSrc].sort();
  return { format: 1, sources: await hashes(here, sources), built: await hashes(target, BUILT) };
}

async function hashes(folder, names) {
  const entries = {};
  for (const name of names) {
    entries[name] = createHash("sha256").update(await readFile(join(folder, name))).digest("hex");
  }
  return entries;
}
