// Package flowpath contains what services need for the path of a flow through the switches, however
// the path was chosen: the rules that forward the flow along it and its answers back, the ports
// that it uses, and whether it still works. Its functions are pure; they read the network through a
// [Network]. Start reading at Forwarding.
package flowpath
