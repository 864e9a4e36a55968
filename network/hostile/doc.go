// Package hostile provides switches that do harm, each in a way of its own: what a
// controller must stand without others noticing. They speak OpenFlow 1.3 over real
// connections, as [github.com/sluice-net/sluice/network/fake]'s do.
//
// [Kinds] lists them, and [Kind.Run] has one of them do its worst for a while.
package hostile
