// Package hostile provides switches and end hosts that do harm, each in a way of its own:
// what a controller and its network must stand without others noticing. The switches speak
// OpenFlow 1.3 over real connections, as [github.com/sluice-net/sluice/network/fake]'s do.
//
// [Kinds] lists what switches do, and [Kind.Run] has one of them do its worst for a while.
// [FrameKinds] lists what end hosts send; whoever has an interface sends it.
package hostile
