// Which form of which device is open, and what became of the last one.

import { useEffect, useRef, useState } from "preact/hooks";

import type { Act } from "./orders";

interface Asked {
  device: string;
  act: Act;
}

export function useActs() {
  const [asked, setAsked] = useState<Asked>();
  const [told, setTold] = useState<{ message: string; order?: number | undefined }>({ message: "" });
  const opener = useRef<HTMLElement>();
  const notice = useRef<HTMLParagraphElement>(null);
  // The form that had the focus is gone.
  useEffect(() => {
    if (told.message) notice.current?.focus();
  }, [told]);
  const close = (): void => {
    setAsked(undefined);
    opener.current?.focus();
  };
  const is = (device: string, act: Act): boolean => asked?.device === device && asked.act === act;
  return {
    asked,
    told,
    notice,
    is,
    close,
    /** Opens a form for a device, or closes it. */
    toggle: (device: string, act: Act, by: HTMLElement) => {
      opener.current = by;
      setTold({ message: "" });
      if (is(device, act)) close();
      else setAsked({ device, act });
    },
    done: (message: string, order?: number) => {
      setAsked(undefined);
      setTold({ message, order });
    },
  };
}
