package hostagent

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// diagMessage is one of sock_diag about a socket between two ends.
func diagMessage(family uint8, local, remote netip.AddrPort, info []byte) []byte {
	b := make([]byte, diagMessageLen)
	b[0] = family
	binary.BigEndian.PutUint16(b[4:], local.Port())
	binary.BigEndian.PutUint16(b[6:], remote.Port())
	copy(b[8:24], local.Addr().AsSlice())
	copy(b[24:40], remote.Addr().AsSlice())
	return append(b, nl.NewRtAttr(diagInfo, info).Serialize()...)
}

// mptcpInfo is a struct mptcp_info of a length.
func mptcpInfo(length int) []byte {
	b := make([]byte, 96)
	binary.NativeEndian.PutUint32(b[8:], flagFallback)
	binary.NativeEndian.PutUint32(b[infoToken:], 0xabcd)
	binary.NativeEndian.PutUint64(b[infoSndUna:], 1000)
	binary.NativeEndian.PutUint64(b[infoRcvNxt:], 2000)
	binary.NativeEndian.PutUint64(b[infoBytesReceived:], 30)
	binary.NativeEndian.PutUint64(b[infoBytesAcked:], 4)
	return b[:length]
}

func TestParseConnection(t *testing.T) {
	six := netip.MustParseAddrPort("[fd00::1]:9")
	for name, c := range map[string]struct {
		message []byte
		want    Connection
		ok      bool
	}{
		"a new kernel's":  {diagMessage(unix.AF_INET, here, there, mptcpInfo(96)), Connection{0xabcd, here, there, 34, true, true}, true},
		"an old kernel's": {diagMessage(unix.AF_INET6, six, six, mptcpInfo(48)), Connection{0xabcd, six, six, 3000, false, true}, true},
		"too short":       {diagMessage(unix.AF_INET, here, there, mptcpInfo(32)), Connection{}, false},
		"cut off":         {diagMessage(unix.AF_INET, here, there, mptcpInfo(96))[:80], Connection{}, false},
		"no information":  {diagMessage(unix.AF_INET, here, there, nil)[:diagMessageLen], Connection{}, false},
		"another family":  {diagMessage(unix.AF_UNIX, here, there, mptcpInfo(96)), Connection{}, false},
		"nothing":         {nil, Connection{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseConnection(c.message)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("%+v, %v; want %+v", got, ok, c.want)
			}
		})
	}
}

// eventMessage is one of the path manager.
func eventMessage(kind uint8, attrs ...*nl.RtAttr) []byte {
	b := []byte{kind, 1, 0, 0}
	for _, a := range attrs {
		b = append(b, a.Serialize()...)
	}
	return b
}

func TestParseEvent(t *testing.T) {
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	token := nl.NewRtAttr(eventToken, nl.Uint32Attr(7))
	opened := eventMessage(10, token, nl.NewRtAttr(eventFamily, nl.Uint16Attr(unix.AF_INET)),
		nl.NewRtAttr(eventSaddr4, here.Addr().AsSlice()), nl.NewRtAttr(eventDaddr4, there.Addr().AsSlice()),
		nl.NewRtAttr(eventSport, port(40000)), nl.NewRtAttr(eventDport, port(80)), nl.NewRtAttr(eventServer, []byte{1}))
	if e, ok := parseEvent(opened); !ok || e != (Event{SubflowOpened, 7, here, there, true}) {
		t.Errorf("%+v, %v", e, ok)
	}
	if e, ok := parseEvent(eventMessage(3, token)); !ok || e.Kind != ConnectionClosed || e.Token != 7 {
		t.Errorf("%+v, %v", e, ok)
	}
	for name, b := range map[string][]byte{"nothing": nil, "no token": eventMessage(10), "another kind": eventMessage(6, token), "cut off": opened[:7], "a short token": eventMessage(3, nl.NewRtAttr(eventToken, []byte{1}))} {
		if e, ok := parseEvent(b); ok {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestLastAttributeUnpadded: the last attribute may lack the bytes that fill it up.
func TestLastAttributeUnpadded(t *testing.T) {
	b := eventMessage(10, nl.NewRtAttr(eventToken, nl.Uint32Attr(7)), nl.NewRtAttr(eventServer, []byte{1}))
	if e, ok := parseEvent(b[: len(b)-3 : len(b)-3]); !ok || !e.Server {
		t.Errorf("%+v, %v", e, ok)
	}
	info := diagMessage(unix.AF_INET, here, there, append(mptcpInfo(96), 1))
	if c, ok := parseConnection(info[: len(info)-3 : len(info)-3]); !ok || c.Token != 0xabcd {
		t.Errorf("%+v, %v", c, ok)
	}
}

// FuzzMessages: whatever the kernel says is read or left.
func FuzzMessages(f *testing.F) {
	f.Add(diagMessage(unix.AF_INET, here, there, mptcpInfo(96)))
	f.Add(eventMessage(10, nl.NewRtAttr(eventServer, []byte{1}))[:9])
	f.Add(eventMessage(10, nl.NewRtAttr(eventToken, nl.Uint32Attr(7)), nl.NewRtAttr(eventSport, []byte{1, 2})))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parseConnection(b); ok && (!c.Local.IsValid() || !c.Remote.IsValid()) {
			t.Errorf("%+v", c)
		}
		if e, ok := parseEvent(b); ok && e.Kind != ConnectionCreated && e.Kind != ConnectionClosed && e.Kind != SubflowOpened && e.Kind != SubflowClosed {
			t.Errorf("%+v", e)
		}
		parseCarried(b)
	})
}
