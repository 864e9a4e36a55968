// Moves and enlarges the picture: by buttons, keys, the pointer, and two fingers.

import { useEffect, useRef, useState } from "preact/hooks";

import type { Box } from "./labels";
import type { Point } from "./layout";
import { moved, pixels, seen, showing, whole, zoomed, type Size, type Viewport } from "./viewport";

const stepZoom = 1.5;
/** Share of the view that a key moves it by. */
const stepMove = 0.2;
const lowest = 260;

export function useViewport(box: Box, key: string) {
  const place = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(1000);
  const [view, setView] = useState<Viewport>(() => whole(box));
  useEffect(() => setView(whole(box)), [key]);
  useEffect(() => {
    const element = place.current!;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth || 1000));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const natural = pixels(box, { width, height: Infinity }, 1) * box.height;
  const size: Size = { width, height: Math.max(lowest, Math.min(0.62 * innerHeight, natural)) };
  const now = view.zoom === 1 ? whole(box) : view;
  const zoom = (by: number, at?: Point): void => setView((v) => zoomed(v, box, by, at));
  const move = (x: number, y: number): void => setView((v) => moved(v, box, x, y));

  /** Whether the key was one of the picture's own. What is looked at stays where it is. */
  const press = (e: KeyboardEvent, at?: Point): boolean => {
    const { width: w, height: h } = seen(now, box, size);
    if (e.key === "+" || e.key === "=") zoom(stepZoom, at);
    else if (e.key === "-") zoom(1 / stepZoom, at);
    else if (e.key === "0") setView(whole(box));
    else if (!e.shiftKey) return false;
    else if (e.key === "ArrowLeft") move(-stepMove * w, 0);
    else if (e.key === "ArrowRight") move(stepMove * w, 0);
    else if (e.key === "ArrowUp") move(0, -stepMove * h);
    else if (e.key === "ArrowDown") move(0, stepMove * h);
    else return false;
    return true;
  };
  return {
    place,
    size,
    zoom: now.zoom,
    seen: seen(now, box, size),
    pixels: pixels(box, size, now.zoom),
    larger: () => zoom(stepZoom),
    smaller: () => zoom(1 / stepZoom),
    all: () => setView(whole(box)),
    show: (at: Point) => setView((v) => showing(v, box, size, at)),
    press,
    pointer: usePointer(now, pixels(box, size, now.zoom), zoom, move),
  };
}

/** Drags with one pointer, and enlarges with two, or with the wheel and Ctrl. */
function usePointer(view: Viewport, scale: number, zoom: (by: number, at?: Point) => void, move: (x: number, y: number) => void) {
  const down = useRef(new Map<number, Point>());
  const apart = (): number => {
    const [a, b] = [...down.current.values()];
    return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
  };
  const lift = (e: PointerEvent): void => {
    down.current.delete(e.pointerId);
  };
  return {
    onPointerDown: (e: PointerEvent) => {
      down.current.set(e.pointerId, { x: e.clientX, y: e.clientY });
    },
    onPointerMove: (e: PointerEvent) => {
      const last = down.current.get(e.pointerId);
      if (!last) return;
      const before = apart();
      down.current.set(e.pointerId, { x: e.clientX, y: e.clientY });
      if (before > 0) zoom(apart() / before);
      else if (view.zoom > 1) move((last.x - e.clientX) / scale, (last.y - e.clientY) / scale);
    },
    onPointerUp: lift,
    onPointerCancel: lift,
    onPointerLeave: lift,
    onWheel: (e: WheelEvent) => {
      if (!e.ctrlKey) return; // else the page would not scroll over the picture
      e.preventDefault();
      zoom(e.deltaY < 0 ? 1.2 : 1 / 1.2);
    },
  };
}
