import { expect, test } from "vitest";

import { textOf } from "../src/api/bounded";
import { Problem } from "../src/api/problem";
import { Parser } from "../src/api/sse";

test("an answer is read to its end", async () => {
  expect(await textOf(new Response("grün"))).toBe("grün");
  expect(await textOf(new Response(null))).toBe("");
});

test("an answer without end is not", async () => {
  let sent = 0;
  const endless = new ReadableStream({ pull: (c) => { sent++; c.enqueue(new Uint8Array(1 << 20)); } });
  const error = await textOf(new Response(endless), 2 << 20).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(Problem);
  expect((error as Problem).message).toMatch(/more than 2 MiB/);
  expect(sent).toBeLessThan(6);
});

test("a message of the event stream without end is not kept", () => {
  const parser = new Parser();
  const piece = "a".repeat(1 << 18);
  expect(() => { for (let i = 0; i < 8; i++) parser.push(piece); }).toThrow(/does not end/);
  const lines = new Parser();
  expect(() => { for (let i = 0; i < 8; i++) lines.push(`data: ${piece}\n`); }).toThrow(/does not end/);
});

test("many messages are as many as there are", () => {
  const parser = new Parser();
  let messages = 0;
  for (let i = 0; i < 40; i++) messages += parser.push(`id: ${i}\ndata: ${"b".repeat(1 << 16)}\n\n`).length;
  expect(messages).toBe(40);
});
