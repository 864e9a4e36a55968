// Package hostile provides switches and end hosts that misbehave, each in a different way. A
// controller and its network must withstand them without effect on others. The switches speak
// OpenFlow 1.3 over real connections, as those of [github.com/sluice-net/sluice/network/fake] do.
//
// [Kinds] lists the kinds of switches, and [Kind.Run] runs one. [FrameKinds] lists the kinds of
// frames that end hosts send; the caller sends them by an interface.
package hostile
