// Asks for the token.

import { useEffect, useRef, useState } from "preact/hooks";

import { Client } from "../api/client";
import { asProblem } from "../api/problem";
import { useWorld } from "../state/hooks";

export function Login() {
  const { session } = useWorld();
  const [token, setToken] = useState("");
  const [message, setMessage] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);

  const submit = async (): Promise<void> => {
    const attempt = token.trim();
    try {
      await new Client({ token: () => attempt, refused: () => undefined }).get("/status");
      session.logIn(attempt);
    } catch (error) {
      const problem = asProblem(error);
      setMessage(problem.status === 401 ? "The controller does not know this token." : `That did not work: ${problem.message}.`);
      input.current?.focus();
    }
  };

  return (
    <main class="login">
      <h1>Sluice</h1>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <label for="token">Token</label>
        <input
          id="token" ref={input} type="password" autocomplete="off" spellcheck={false} required value={token}
          aria-invalid={message !== ""} aria-describedby="token-hint token-error"
          onInput={(e) => setToken(e.currentTarget.value)}
        />
        <p id="token-hint" class="soft">The contents of the controller's token file. It is kept until this tab is closed.</p>
        <p id="token-error" class="error" role="alert">{message}</p>
        <button class="primary" type="submit">Log in</button>
      </form>
    </main>
  );
}
