// Package drift keeps the things that a program has declared on a machine as they were declared:
// tables of nftables, rules of routing, settings of the kernel, programs at interfaces. Another
// program may remove or change them while the first one runs.
//
// A [Thing] is compared with its declaration when the kernel notifies of a change of its kind, and
// at a steady interval. A notification only causes a comparison; its content does not matter, and
// lost notifications cause a comparison as well. [Counts] records what had to be restored.
//
// The cost is bounded, whatever other programs do: at most five comparisons follow
// notifications at once, and two a second after that. A program that changes a thing again and
// again is reported three times at once, and every ten minutes after that, with the total.
//
// Start reading at [Keeper].
package drift
