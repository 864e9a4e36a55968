package network

import (
	"fmt"
	"reflect"
	"sync"
)

// memory bounds what is kept of replies until they have come in whole: so many bytes of
// each switch, and of all together. What counts is what they take here, which may be many
// times what they are on the wire.
type memory struct {
	each, limit int64

	mu     sync.Mutex
	common int64 // bytes that sessions have taken beyond their own
}

// purse is what one session has taken; the memory's mutex guards it.
type purse struct{ used int64 }

// ownReplies is what a session may take whatever others have: enough for the ports and
// rules of an ordinary switch.
const ownReplies = 256 << 10

// keptPart is what a part of a reply takes besides what it holds.
const keptPart = 128

func beyondOwn(used int64) int64 { return max(0, used-ownReplies) }

func (m *memory) take(p *purse, bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := p.used + bytes
	common := m.common + beyondOwn(used) - beyondOwn(p.used)
	switch {
	case used > m.each:
		return fmt.Errorf("%w: replies of the switch take more than openflow.max_reply, %d bytes", ErrBusy, m.each)
	case common > m.limit && beyondOwn(used) > 0:
		return fmt.Errorf("%w: replies of all switches take more than openflow.max_replies, %d bytes", ErrBusy, m.limit)
	}
	p.used, m.common = used, common
	return nil
}

func (m *memory) give(p *purse, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.common += beyondOwn(p.used-bytes) - beyondOwn(p.used)
	p.used -= bytes
}

// footprint is how many bytes lie behind the references of a value.
func footprint(v reflect.Value) (bytes int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if !v.IsNil() {
			return int64(v.Type().Elem().Size()) + footprint(v.Elem())
		}
	case reflect.Interface:
		return footprint(v.Elem())
	case reflect.Slice:
		bytes = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if refers(v.Type().Elem()) {
			for i := range v.Len() {
				bytes += footprint(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += footprint(v.Field(i))
		}
	}
	return bytes
}

// refers says whether something may lie behind values of a type.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice:
		return true
	case reflect.Struct:
		for i := range t.NumField() {
			if refers(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
