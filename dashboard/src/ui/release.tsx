// Releases something, after asking whether that is meant.

import { useRef, useState } from "preact/hooks";

import { asProblem } from "../api/problem";
import { useWorld } from "../state/hooks";

interface Props {
  /** What is released, as in "class video". */
  what: string;
  path: string;
  done(message: string): void;
}

export function Release({ what, path, done }: Props) {
  const { client, live } = useWorld();
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState("");

  const release = async (): Promise<void> => {
    try {
      await client.delete(path);
      dialog.current?.close();
      done(`The ${what} was released.`);
    } catch (problem) {
      setError(asProblem(problem).message);
    } finally {
      live.refreshAll();
    }
  };

  return (
    <>
      <button type="button" aria-label={`Release ${what}`} onClick={() => dialog.current?.showModal()}>Release</button>
      <dialog ref={dialog} aria-label={`Release ${what}`} onClose={() => setError("")}>
        <p>Release the {what}? Its queues, rules and reservations are removed.</p>
        <p class="error" role="alert">{error}</p>
        <div class="actions">
          <button type="button" class="primary" onClick={() => void release()}>Release it</button>
          <button type="button" onClick={() => dialog.current?.close()}>Keep it</button>
        </div>
      </dialog>
    </>
  );
}
