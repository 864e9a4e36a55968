// Releases, removes or ends something, after asking whether that is meant.

import { useRef, useState } from "preact/hooks";

import { asProblem } from "../api/problem";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { Check } from "./check";

interface Props {
  /** What is released, as in "class video". */
  what: string;
  path: string;
  /** What that is called: released, removed, ended. */
  words?: Words;
  done(message: string): void;
}

interface Words {
  verb: string;
  past: string;
  effect: string;
  /** What asks for it even so; where it is left out, that cannot be asked for. */
  force?: string;
}

const released: Words = { verb: "Release", past: "released", effect: "Its queues, rules and reservations are removed." };

export function Release({ what, path, words: { verb, past, effect, force } = released, done }: Props) {
  const { client, live } = useWorld();
  const names = useNames();
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState("");
  const [forced, setForced] = useState(false);

  const release = async (): Promise<void> => {
    try {
      await client.delete(forced ? `${path}?force=true` : path);
      dialog.current?.close();
      done(`The ${what} was ${past}.`);
    } catch (problem) {
      setError(names.said(asProblem(problem).message));
    } finally {
      live.refreshAll();
    }
  };

  const closed = (): void => {
    setError("");
    setForced(false);
  };

  return (
    <>
      <button type="button" aria-label={`${verb} ${what}`} onClick={() => dialog.current?.showModal()}>{verb}</button>
      <dialog ref={dialog} aria-label={`${verb} ${what}`} onClose={closed}>
        <p>{verb} the {what}? {effect}</p>
        {force && <Check label={force} checked={forced} change={setForced} />}
        <p class="error" role="alert">{error}</p>
        <div class="actions">
          <button type="button" class="primary" autofocus onClick={() => void release()}>{verb} it</button>
          <button type="button" onClick={() => dialog.current?.close()}>Keep it</button>
        </div>
      </dialog>
    </>
  );
}
