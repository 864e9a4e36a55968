// Package qos tests the QoS service on real Open vSwitch: networks of namespaces, real
// packets, and the output of tc and ovs-vsctl.
package qos
