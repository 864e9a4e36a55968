package hostagent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/genl"
)

// EventKind is the kind of an event about a connection or a subflow.
type EventKind uint8

// These are the kinds of events that the agent handles, with the kernel's numbers.
const (
	ConnectionCreated EventKind = 1
	ConnectionClosed  EventKind = 3
	SubflowOpened     EventKind = 10
	SubflowClosed     EventKind = 11
)

// Event is an event of the kernel's path manager. Local and Remote are the ends of the subflow, or,
// in an event about a connection, the ends of its first subflow.
type Event struct {
	Kind          EventKind
	Token         uint32
	Local, Remote netip.AddrPort
	// Server reports whether the other end has opened the connection.
	Server bool
}

// Constants of linux/mptcp.h.
const (
	eventGroup = "mptcp_pm_events"

	eventToken  = 1
	eventFamily = 2
	eventSaddr4 = 5
	eventSaddr6 = 6
	eventDaddr4 = 7
	eventDaddr6 = 8
	eventSport  = 9
	eventDport  = 10
	eventServer = 18
)

// ErrMissed means that the kernel had more events than could be received, and that some are lost.
var ErrMissed = errors.New("events of the kernel's path manager were lost")

// Events is a subscription to the events of the kernel's path manager.
type Events struct{ socket *nl.NetlinkSocket }

// Subscribe subscribes to the events. The kernel accepts further subflows of connections
// with the user-space path manager only while there is a subscriber.
func Subscribe() (*Events, error) {
	f, err := genl.Find(pmFamily)
	if err != nil {
		return nil, fmt.Errorf("events of MPTCP: %w", err)
	}
	group, ok := f.Groups[eventGroup]
	if !ok {
		return nil, fmt.Errorf("the kernel has no events of MPTCP (group %s of %s)", eventGroup, pmFamily)
	}
	s, err := nl.Subscribe(unix.NETLINK_GENERIC, uint(group))
	if err != nil {
		return nil, fmt.Errorf("events of MPTCP (CAP_NET_ADMIN is needed): %w", err)
	}
	return &Events{s}, nil
}

// Close ends the subscription. A pending call of Next then returns.
func (e *Events) Close() { e.socket.Close() }

// Next waits for events. It returns ErrMissed if some were lost, and can be called again
// after that.
func (e *Events) Next() (all []Event, err error) {
	messages, _, err := e.socket.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		return nil, ErrMissed
	}
	if err != nil {
		return nil, fmt.Errorf("events of MPTCP: %w", err)
	}
	for _, m := range messages {
		if x, ok := parseEvent(m.Data); ok {
			all = append(all, x)
		}
	}
	return all, nil
}

// parseEvent parses a message of generic netlink. It returns false if the message is not an event
// of a kind that the agent handles, or is incomplete.
func parseEvent(b []byte) (e Event, ok bool) {
	if len(b) < unix.GENL_HDRLEN {
		return e, false
	}
	e.Kind = EventKind(b[0])
	switch e.Kind {
	case ConnectionCreated, ConnectionClosed, SubflowOpened, SubflowClosed:
	default:
		return e, false
	}
	var local, remote netip.Addr
	var sport, dport uint16
	token := false
	for kind, v := range genl.Attributes(b[unix.GENL_HDRLEN:]) {
		switch {
		case kind == eventToken && len(v) == 4:
			e.Token, token = binary.NativeEndian.Uint32(v), true
		case (kind == eventSaddr4 || kind == eventSaddr6) && (len(v) == 4 || len(v) == 16):
			local, _ = netip.AddrFromSlice(v)
		case (kind == eventDaddr4 || kind == eventDaddr6) && (len(v) == 4 || len(v) == 16):
			remote, _ = netip.AddrFromSlice(v)
		case kind == eventSport && len(v) == 2:
			sport = binary.BigEndian.Uint16(v)
		case kind == eventDport && len(v) == 2:
			dport = binary.BigEndian.Uint16(v)
		case kind == eventServer && len(v) == 1:
			e.Server = v[0] != 0
		}
	}
	e.Local, e.Remote = netip.AddrPortFrom(local.Unmap(), sport), netip.AddrPortFrom(remote.Unmap(), dport)
	return e, token
}
