package genl

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Message is the header of a request: the command that a family is to execute, and the version of
// the family's protocol.
type Message struct{ Command, Version uint8 }

// Len returns the size of the header in bytes.
func (Message) Len() int { return unix.GENL_HDRLEN }

// Serialize returns the header in the kernel's format.
func (m Message) Serialize() []byte { return []byte{m.Command, m.Version, 0, 0} }

// Family is a part of the kernel with which programs communicate by generic netlink.
type Family struct {
	ID uint16
	// Groups holds the numbers of the family's multicast groups, to which it sends events, by name.
	Groups map[string]uint32
}

// Find asks the kernel for the family with a name.
func Find(name string) (Family, error) {
	request := nl.NewNetlinkRequest(unix.GENL_ID_CTRL, 0)
	request.AddData(Message{unix.CTRL_CMD_GETFAMILY, 1})
	request.AddData(nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(name)))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return Family{}, fmt.Errorf("generic netlink %s: %w", name, err)
	}
	for _, b := range answers {
		if f, ok := parseFamily(b); ok {
			return f, nil
		}
	}
	return Family{}, fmt.Errorf("generic netlink %s: the kernel does not tell its number", name)
}

// parseFamily parses an answer about a family. It returns false if the answer has no number of a
// family.
func parseFamily(b []byte) (f Family, ok bool) {
	if len(b) < unix.GENL_HDRLEN {
		return f, false
	}
	f.Groups = map[string]uint32{}
	for kind, v := range Attributes(b[unix.GENL_HDRLEN:]) {
		switch {
		case kind == unix.CTRL_ATTR_FAMILY_ID && len(v) == 2:
			f.ID, ok = binary.NativeEndian.Uint16(v), true
		case kind == unix.CTRL_ATTR_MCAST_GROUPS:
			for _, group := range Attributes(v) {
				f.addGroup(group)
			}
		}
	}
	return f, ok
}

func (f *Family) addGroup(b []byte) {
	var name string
	var id uint32
	for kind, v := range Attributes(b) {
		switch {
		case kind == unix.CTRL_ATTR_MCAST_GRP_NAME:
			text, _, _ := bytes.Cut(v, []byte{0})
			name = string(text)
		case kind == unix.CTRL_ATTR_MCAST_GRP_ID && len(v) == 4:
			id = binary.NativeEndian.Uint32(v)
		}
	}
	f.Groups[name] = id
}
