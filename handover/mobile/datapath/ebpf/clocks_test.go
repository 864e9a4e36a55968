package ebpf

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/openflow"
)

// TestCopyOfLaterClock brings a packet by two interfaces, of which the first noted
// a later time than the second: two processors each read the clock before they look
// for the packet, and the one that has read it first may look last.
func TestCopyOfLaterClock(t *testing.T) {
	macs := [2]openflow.MAC{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 3}}
	s, first := loaded(t, macs[0])
	second, err := s.loadReceiver(datapath.Interface{Name: "more", MAC: macs[1]}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := s.Choices.Put(uint32(0), choice{Receive: 3, Merge: 1}); err != nil {
		t.Fatal(err)
	}
	gateway := openflow.MAC{2, 9, 9, 9, 9, 9}
	if verdict, _, err := first.Test(frameOf(gateway, macs[0])); err != nil || verdict != redirected {
		t.Fatalf("the packet: verdict %d, %v", verdict, err)
	}
	var key uint64
	var remembered []byte // struct copies, which begins with the time
	if all := s.Seen.Iterate(); !all.Next(&key, &remembered) {
		t.Fatalf("the packet is not remembered: %v", all.Err())
	}
	binary.NativeEndian.PutUint64(remembered, binary.NativeEndian.Uint64(remembered)+uint64(time.Second))
	if err := s.Seen.Put(key, remembered); err != nil {
		t.Fatal(err)
	}
	if verdict, _, err := second.Test(frameOf(gateway, macs[1])); err != nil || verdict == redirected {
		t.Errorf("its copy is delivered as well: verdict %d, %v", verdict, err)
	}
}
