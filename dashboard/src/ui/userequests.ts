// Whether a panel's form is open, and what became of the last request.

import { useEffect, useRef, useState } from "preact/hooks";

export function useRequests() {
  const [open, setOpen] = useState(false);
  const [message, setMessage] = useState("");
  const notice = useRef<HTMLParagraphElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  // What was done may have removed what had the focus: the form, or the row.
  useEffect(() => {
    if (message) notice.current?.focus();
  }, [message]);
  return {
    open,
    message,
    notice,
    /** Goes on the button that opens the form. */
    opener,
    toggle: () => {
      setOpen(!open);
      setMessage("");
      if (open) opener.current?.focus();
    },
    done: (text: string) => {
      setOpen(false);
      setMessage(text);
    },
  };
}
