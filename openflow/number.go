package openflow

import (
	"fmt"
	"strconv"
)

// Reserved port numbers. Numbers from 1 to PortMax are ports of the switch.
const (
	PortMax        uint32 = 0xffffff00 // highest number of a port of the switch
	PortInPort     uint32 = 0xfffffff8 // back out of the port it came in by
	PortTable      uint32 = 0xfffffff9 // packet-out only: through the flow tables
	PortNormal     uint32 = 0xfffffffa // the switch's own forwarding
	PortFlood      uint32 = 0xfffffffb // the switch's own flooding
	PortAll        uint32 = 0xfffffffc // every port but the one it came in by
	PortController uint32 = 0xfffffffd // to the controller
	PortLocal      uint32 = 0xfffffffe // the switch's own network stack
	PortAny        uint32 = 0xffffffff // wildcard in requests and deletions
)

// Reserved numbers of buffers, groups, meters, queues, tables and lengths.
const (
	NoBuffer        uint32 = 0xffffffff // the whole packet is in the message
	GroupMax        uint32 = 0xffffff00
	GroupAll        uint32 = 0xfffffffc
	GroupAny        uint32 = 0xffffffff
	MeterMax        uint32 = 0xffff0000
	MeterSlowPath   uint32 = 0xfffffffd
	MeterController uint32 = 0xfffffffe
	MeterAll        uint32 = 0xffffffff
	QueueAll        uint32 = 0xffffffff
	TableMax        uint8  = 0xfe
	TableAll        uint8  = 0xff
	MaxLenNoBuffer  uint16 = 0xffff // send the whole packet to the controller
)

// Experimenter identifiers.
const (
	ExperimenterONF    uint32 = 0x4f4e4600 // Open Networking Foundation
	ExperimenterNicira uint32 = 0x00002320 // Open vSwitch
)

var portNames = map[uint32]string{
	PortInPort: "IN_PORT", PortTable: "TABLE", PortNormal: "NORMAL", PortFlood: "FLOOD",
	PortAll: "ALL", PortController: "CONTROLLER", PortLocal: "LOCAL", PortAny: "ANY",
}

// PortName returns a port number as people write it: reserved ports by name.
func PortName(port uint32) string {
	if name, ok := portNames[port]; ok {
		return name
	}
	return strconv.FormatUint(uint64(port), 10)
}

func groupName(id uint32) string {
	switch id {
	case GroupAll:
		return "ALL"
	case GroupAny:
		return "ANY"
	}
	return strconv.FormatUint(uint64(id), 10)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
