package conformance

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// hostIP and hostMAC are those of the host at switch i.
func hostIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

func hostMAC(i int) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 0, byte(i + 1)} }
