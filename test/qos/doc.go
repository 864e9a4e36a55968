// Package qos tries the QoS service on real Open vSwitch: networks of
// namespaces, real packets, and what tc and ovs-vsctl say about them.
package qos
