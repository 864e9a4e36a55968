// Package reflector is an OpenFlow 1.3 controller that sends every packet that switches pass to it
// out of one port, and does nothing else. What it costs, and how long its answers take, is the least
// that a controller in Go can reach with the same switches and the same load. It reads and writes as
// [github.com/sluice-net/sluice/network] does: what the packets of one read cause is written at once.
package reflector
