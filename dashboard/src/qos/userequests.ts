// Whether a panel's form is open, and what became of the last request.

import { useEffect, useRef, useState } from "preact/hooks";

export function useRequests() {
  const [open, setOpen] = useState(false);
  const [message, setMessage] = useState("");
  const notice = useRef<HTMLParagraphElement>(null);
  // What was done may have removed what had the focus: the form, or the row.
  useEffect(() => {
    if (message) notice.current?.focus();
  }, [message]);
  return {
    open,
    message,
    notice,
    toggle: () => {
      setOpen(!open);
      setMessage("");
    },
    done: (text: string) => {
      setOpen(false);
      setMessage(text);
    },
  };
}
