// Bundles src/ into the folder the server serves: `node build.mjs [folder]`. The same sources give the same bytes.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../etude/server/static"));

await mkdir(target, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.ts" },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) {
  await copyFile(join(here, "src", name), join(target, name));
}
