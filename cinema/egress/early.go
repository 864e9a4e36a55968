package egress

import (
	"bytes"
	"net/netip"
)

// What may be kept of a channel whose source is not known yet: a group of pictures.
const (
	maxEarly      = 4096
	maxEarlyBytes = 4 << 20
)

// early are datagrams that have come before the controller has said from where: the switches
// have their rules, and a burst is on its way, before its answer is here. Those of other
// sources are forgotten when it is.
type early struct {
	open  bool
	port  uint16 // from which they are to come; 0: not known
	all   []datagram
	bytes int
}

type datagram struct {
	from netip.AddrPort
	raw  []byte
}

// keep keeps a datagram, if it may be one that is waited for.
func (e *early) keep(from netip.AddrPort, raw []byte) bool {
	if !e.open || e.port != 0 && from.Port() != e.port || len(e.all) >= maxEarly || e.bytes+len(raw) > maxEarlyBytes {
		return false
	}
	e.all = append(e.all, datagram{from, bytes.Clone(raw)})
	e.bytes += len(raw)
	return true
}
