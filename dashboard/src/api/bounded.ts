// Reads what the controller sends, but not without end.

import { Problem } from "./problem";

/** Bytes of one answer: more than 50,000 rules. */
export const mostBytes = 32 << 20;

/** The text of an answer; a Problem if it is too long, of which the rest is not read. */
export async function textOf(answer: Response, most = mostBytes): Promise<string> {
  if (!answer.body) return "";
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = "", bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.length;
    if (bytes > most) {
      await reader.cancel();
      throw new Problem(0, `the controller answers with more than ${most >> 20} MiB, which this page does not read; sluice does`);
    }
    text += decoder.decode(value, { stream: true });
  }
}
