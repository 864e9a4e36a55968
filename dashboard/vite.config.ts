import { defineConfig } from "vite";

// Names without hashes, so that the built files can be kept under version
// control: the server sends a hash of each as its ETag.
export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    target: "es2022",
    cssTarget: "chrome123",
    modulePreload: false,
    rollupOptions: { output: { entryFileNames: "dashboard.js", assetFileNames: "dashboard[extname]" } },
  },
});
