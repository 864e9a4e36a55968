package genl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel's own family, which every kernel has, by its number.
func TestFind(t *testing.T) {
	f, err := Find("nlctrl")
	if err != nil || f.ID != unix.GENL_ID_CTRL || f.Groups["notify"] == 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := Find("sluice-none"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%+v, %v", f, err)
	}
}

// All that goes to the kernel is in the message itself.
func TestMessage(t *testing.T) {
	r := nl.NewNetlinkRequest(20, 0)
	r.AddData(Message{7, 1})
	if b := r.Serialize(); len(b) != unix.SizeofNlMsghdr+unix.GENL_HDRLEN || !bytes.Equal(b[unix.SizeofNlMsghdr:], []byte{7, 1, 0, 0}) {
		t.Errorf("%x", b)
	}
	if (Message{}).Len() != unix.GENL_HDRLEN {
		t.Error("another length")
	}
}

// FuzzFamily: an answer that is cut off or made up is read as far as it goes.
func FuzzFamily(f *testing.F) {
	group := nl.NewRtAttr(1, nil)
	group.AddRtAttr(unix.CTRL_ATTR_MCAST_GRP_NAME, nl.ZeroTerminated("notify"))
	group.AddRtAttr(unix.CTRL_ATTR_MCAST_GRP_ID, nl.Uint32Attr(16))
	groups := nl.NewRtAttr(unix.CTRL_ATTR_MCAST_GROUPS|unix.NLA_F_NESTED, nil)
	groups.AddChild(group)
	whole := append(Message{}.Serialize(), nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_ID, nl.Uint16Attr(16)).Serialize()...)
	whole = append(whole, groups.Serialize()...)
	if got, ok := parseFamily(whole); !ok || got.ID != 16 || got.Groups["notify"] != 16 {
		f.Errorf("%+v, %v", got, ok)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := parseFamily(b); ok {
			id := binary.NativeEndian.AppendUint16(nil, got.ID)
			if !bytes.Contains(b, id) || len(got.Groups) > len(b) {
				t.Errorf("%x is read as %+v", b, got)
			}
		}
	})
}
