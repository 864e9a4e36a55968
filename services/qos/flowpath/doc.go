// Package flowpath has what services do with the path of a flow through the switches,
// however it was chosen: the rules that forward the flow along it and its answers back, the
// order in which switches are written, and whether the path still exists. Its functions are
// pure; they read the network through a [Network]. Start reading at Forwarding.
package flowpath
