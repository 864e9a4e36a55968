// Package handover tests handover as a whole: a controller with its configuration and its API,
// Open vSwitch, the DHCP clients that Linux systems use, and devices that move while packets are
// sent to them.
package handover
