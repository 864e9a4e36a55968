package openflow

import "fmt"

// ActionType is the number of an action on the wire.
type ActionType uint16

// The actions of OpenFlow 1.3.
const (
	ActionOutput       ActionType = 0
	ActionCopyTTLOut   ActionType = 11
	ActionCopyTTLIn    ActionType = 12
	ActionSetMPLSTTL   ActionType = 15
	ActionDecMPLSTTL   ActionType = 16
	ActionPushVLAN     ActionType = 17
	ActionPopVLAN      ActionType = 18
	ActionPushMPLS     ActionType = 19
	ActionPopMPLS      ActionType = 20
	ActionSetQueue     ActionType = 21
	ActionGroup        ActionType = 22
	ActionSetNWTTL     ActionType = 23
	ActionDecNWTTL     ActionType = 24
	ActionSetField     ActionType = 25
	ActionPushPBB      ActionType = 26
	ActionPopPBB       ActionType = 27
	ActionExperimenter ActionType = 0xffff
)

// layout is the format of the bytes that follow an action's type and length.
type layout uint8

const (
	layoutNone   layout = iota // padding only
	layoutOutput               // port, max_len
	layout8                    // one byte
	layout16                   // two bytes
	layout32                   // four bytes
	layoutField                // an OXM
	layoutRaw                  // experimenter and its bytes
)

type actionInfo struct {
	name   string // the name that ovs-ofctl prints, if it has one
	layout layout
	size   int // bytes on the wire; 0: variable
	hex    bool
}

// actionTable describes every action. The last row is the experimenter action, because its number
// on the wire, 0xffff, is far from the others.
var actionTable = [...]actionInfo{
	ActionOutput:     {"output", layoutOutput, 16, false},
	ActionCopyTTLOut: {"copy_ttl_out", layoutNone, 8, false},
	ActionCopyTTLIn:  {"copy_ttl_in", layoutNone, 8, false},
	ActionSetMPLSTTL: {"set_mpls_ttl", layout8, 8, false},
	ActionDecMPLSTTL: {"dec_mpls_ttl", layoutNone, 8, false},
	ActionPushVLAN:   {"push_vlan", layout16, 8, true},
	ActionPopVLAN:    {"pop_vlan", layoutNone, 8, false},
	ActionPushMPLS:   {"push_mpls", layout16, 8, true},
	ActionPopMPLS:    {"pop_mpls", layout16, 8, true},
	ActionSetQueue:   {"set_queue", layout32, 8, false},
	ActionGroup:      {"group", layout32, 8, false},
	ActionSetNWTTL:   {"mod_nw_ttl", layout8, 8, false},
	ActionDecNWTTL:   {"dec_ttl", layoutNone, 8, false},
	ActionSetField:   {"set_field", layoutField, 0, false},
	ActionPushPBB:    {"push_pbb", layout16, 8, true},
	ActionPopPBB:     {"pop_pbb", layoutNone, 8, false},
	ActionPopPBB + 1: {"experimenter", layoutRaw, 0, false},
}

// info returns the row of the action, and whether there is one.
func (t ActionType) info() (*actionInfo, bool) {
	row := int(t)
	if t == ActionExperimenter {
		row = len(actionTable) - 1
	} else if row >= len(actionTable)-1 {
		return nil, false
	}
	return &actionTable[row], actionTable[row].name != ""
}

// String returns the action's name.
func (t ActionType) String() string {
	if info, ok := t.info(); ok {
		return info.name
	}
	return fmt.Sprintf("action(%d)", uint16(t))
}

// Action is an action on a packet. Type determines which of the other fields are used; the rest
// are zero, so that equal actions are equal under ==.
type Action struct {
	Type   ActionType
	Arg    uint32 // port, group, queue, TTL, Ethernet type or experimenter
	MaxLen uint16 // output to the controller: bytes of the packet to send
	OXM    OXM    // set-field
	Data   string // experimenter: the bytes after the identifier, unchanged
}

// Output sends the packet out of a port.
func Output(port uint32) Action {
	a := Action{Type: ActionOutput, Arg: port}
	if port == PortController {
		a.MaxLen = MaxLenNoBuffer
	}
	return a
}

// OutputController sends the first maxLen bytes of the packet to the controller. MaxLenNoBuffer
// means the whole packet.
func OutputController(maxLen uint16) Action {
	return Action{Type: ActionOutput, Arg: PortController, MaxLen: maxLen}
}

// SetField writes a field of the packet. The field must not be masked.
func SetField(o OXM) Action { return Action{Type: ActionSetField, OXM: o} }

// PushVLAN adds a VLAN tag of the given Ethernet type, 0x8100 or 0x88a8.
func PushVLAN(etherType uint16) Action { return Action{Type: ActionPushVLAN, Arg: uint32(etherType)} }

// PopVLAN removes the outermost VLAN tag.
func PopVLAN() Action { return Action{Type: ActionPopVLAN} }

// PushMPLS adds an MPLS shim of the given Ethernet type, 0x8847 or 0x8848.
func PushMPLS(etherType uint16) Action { return Action{Type: ActionPushMPLS, Arg: uint32(etherType)} }

// PopMPLS removes the outermost MPLS shim, and sets the packet's Ethernet type to the given one.
func PopMPLS(etherType uint16) Action { return Action{Type: ActionPopMPLS, Arg: uint32(etherType)} }

// PushPBB adds a provider backbone header of the given type, 0x88e7.
func PushPBB(etherType uint16) Action { return Action{Type: ActionPushPBB, Arg: uint32(etherType)} }

// PopPBB removes the outermost provider backbone header.
func PopPBB() Action { return Action{Type: ActionPopPBB} }

// GroupAction hands the packet to a group.
func GroupAction(id uint32) Action { return Action{Type: ActionGroup, Arg: id} }

// SetQueue chooses the queue in which the packet waits at its output port.
func SetQueue(id uint32) Action { return Action{Type: ActionSetQueue, Arg: id} }

// SetNWTTL writes the IPv4 TTL or IPv6 hop limit.
func SetNWTTL(ttl uint8) Action { return Action{Type: ActionSetNWTTL, Arg: uint32(ttl)} }

// DecNWTTL decrements the IPv4 TTL or IPv6 hop limit.
func DecNWTTL() Action { return Action{Type: ActionDecNWTTL} }

// SetMPLSTTL writes the TTL of the outermost MPLS shim.
func SetMPLSTTL(ttl uint8) Action { return Action{Type: ActionSetMPLSTTL, Arg: uint32(ttl)} }

// DecMPLSTTL decrements the TTL of the outermost MPLS shim.
func DecMPLSTTL() Action { return Action{Type: ActionDecMPLSTTL} }

// CopyTTLOut copies the TTL from the next to the outermost header.
func CopyTTLOut() Action { return Action{Type: ActionCopyTTLOut} }

// CopyTTLIn copies the TTL from the outermost to the next header.
func CopyTTLIn() Action { return Action{Type: ActionCopyTTLIn} }

// ExperimenterAction returns an action that another organization has defined. The action's header
// of eight bytes and data must together be a multiple of eight bytes.
func ExperimenterAction(experimenter uint32, data []byte) Action {
	return Action{Type: ActionExperimenter, Arg: experimenter, Data: string(data)}
}

// Port returns the port of an output action.
func (a Action) Port() uint32 { return a.Arg }

func appendAction(b []byte, a *Action) ([]byte, error) {
	info, ok := a.Type.info()
	if !ok {
		return b, fmt.Errorf("openflow: action: %w: %d", ErrType, a.Type)
	}
	start := len(b)
	b = put16(b, uint16(a.Type))
	b = put16(b, uint16(info.size))
	switch info.layout {
	case layoutNone:
		b = pad(b, 4)
	case layoutOutput:
		b = put32(b, a.Arg)
		b = put16(b, a.MaxLen)
		b = pad(b, 6)
	case layout8:
		b = append(b, byte(a.Arg), 0, 0, 0)
	case layout16:
		b = put16(b, uint16(a.Arg))
		b = pad(b, 2)
	case layout32:
		b = put32(b, a.Arg)
	case layoutField:
		if err := checkSetField(&a.OXM); err != nil {
			return b, err
		}
		o := a.OXM
		o.normalize()
		b = padTo8(appendOXM(b, &o), start)
		setLen16(b, start, 2)
	case layoutRaw:
		if len(a.Data)&7 != 0 {
			return b, fmt.Errorf("openflow: action: %w: experimenter data of %d bytes, want a multiple of 8", ErrLength, len(a.Data))
		}
		b = append(put32(b, a.Arg), a.Data...)
		setLen16(b, start, 2)
	}
	return b, nil
}

func checkSetField(o *OXM) error {
	if err := o.check(); err != nil {
		return fmt.Errorf("set-field: %w", err)
	}
	if !o.Field.Settable() {
		return fmt.Errorf("openflow: set-field: %w: %s cannot be written", ErrValue, o.Field)
	}
	if o.Masked && o.fullMask() != fieldMasks[o.Field] {
		return fmt.Errorf("openflow: set-field: %w: %v: OpenFlow 1.3 writes whole fields only", ErrValue, *o)
	}
	return nil
}

func appendActions(b []byte, actions []Action) ([]byte, error) {
	var err error
	for i := range actions {
		if b, err = appendAction(b, &actions[i]); err != nil {
			return b, err
		}
	}
	return b, nil
}

// parseActions decodes a list of actions, appending to dst.
func parseActions(dst []Action, b []byte) ([]Action, error) {
	it := iterate(b, &actionShape)
	for it.step() {
		var a Action
		if err := a.decode(it.elem, it.at); err != nil {
			return dst, err
		}
		dst = append(dst, a)
	}
	return dst, it.err
}

func (a *Action) decode(b []byte, at int) error {
	a.Type = ActionType(be.Uint16(b))
	info, ok := a.Type.info()
	if !ok {
		return &DecodeError{What: "action", Offset: at, Err: ErrType, Detail: fmt.Sprintf("%d is no action of OpenFlow 1.3", a.Type)}
	}
	if info.size != 0 && len(b) != info.size {
		return badLength("action", at, "%s has %d bytes, want %d", info.name, len(b), info.size)
	}
	switch info.layout {
	case layoutOutput:
		a.Arg, a.MaxLen = be.Uint32(b[4:]), be.Uint16(b[8:])
	case layout8:
		a.Arg = uint32(b[4])
	case layout16:
		a.Arg = uint32(be.Uint16(b[4:]))
	case layout32:
		a.Arg = be.Uint32(b[4:])
	case layoutField:
		return a.decodeField(b, at)
	case layoutRaw:
		a.Arg, a.Data = be.Uint32(b[4:]), string(b[8:])
	}
	return nil
}

func (a *Action) decodeField(b []byte, at int) error {
	it := iterate(b[4:], &oxmShape)
	if !it.step() {
		return it.err
	}
	known, err := a.OXM.decode(it.elem, at+4)
	if err != nil {
		return err
	}
	if !known {
		return badValue("action", at, "set_field of unknown field %x", it.elem[:4])
	}
	a.OXM.normalize()
	if err := checkSetField(&a.OXM); err != nil {
		return badValue("action", at, "%v", err)
	}
	return nil
}
