package ebpf

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// way is an interface by which the same packet may come.
type way struct {
	receive *ebpf.Program
	mac     openflow.MAC
}

// bring lets the packet come in.
func (w way) bring() (verdict uint32, err error) {
	verdict, _, err = w.receive.Test(frameOf(openflow.MAC{2, 9, 9, 9, 9, 9}, w.mac))
	return verdict, err
}

// twoWays returns two interfaces that are listened to, of which one is in use.
func twoWays(t *testing.T, inUse uint32) (s *shared, first, second way) {
	t.Helper()
	first.mac, second.mac = openflow.MAC{2, 0, 0, 0, 0, 2}, openflow.MAC{2, 0, 0, 0, 0, 3}
	s, first.receive = loaded(t, first.mac)
	var err error
	if second.receive, err = s.loadReceiver(datapath.Interface{Name: "more", MAC: second.mac}, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.receive.Close() })
	if err := s.maps.Choices.Put(uint32(0), datapathChoice{Slot: inUse, Receive: 3, Merge: 1}); err != nil {
		t.Fatal(err)
	}
	return s, first, second
}

// TestCopyOfLaterClock lets a packet come in by two interfaces, of which the first records a later
// time than the second. That happens if two processors each read the clock before they look up the
// packet, and the one that has read it first looks it up last.
func TestCopyOfLaterClock(t *testing.T) {
	s, first, second := twoWays(t, 0)
	if verdict, err := first.bring(); err != nil || verdict != redirected {
		t.Fatalf("the packet: verdict %d, %v", verdict, err)
	}
	age(t, s, -time.Second)
	if verdict, err := second.bring(); err != nil || verdict == redirected {
		t.Errorf("its copy is delivered as well: verdict %d, %v", verdict, err)
	}
}

// age makes the remembered packet older.
func age(t *testing.T, s *shared, by time.Duration) {
	t.Helper()
	var key uint64
	var remembered datapathCopies
	if all := s.maps.Seen.Iterate(); !all.Next(&key, &remembered) {
		t.Fatalf("no packet is remembered: %v", all.Err())
	}
	remembered.Born -= uint64(by)
	if err := s.maps.Seen.Put(key, remembered); err != nil {
		t.Fatal(err)
	}
}

// TestLateCopy lets a packet come in again after a second. By the interface that was left it is a
// delayed copy; by the one in use it is a retransmission.
func TestLateCopy(t *testing.T) {
	for _, inUse := range []uint32{0, 1} {
		s, first, second := twoWays(t, inUse)
		if verdict, err := first.bring(); err != nil || verdict != redirected {
			t.Fatalf("the packet: verdict %d, %v", verdict, err)
		}
		age(t, s, time.Second)
		if verdict, err := second.bring(); err != nil || (verdict == redirected) != (inUse == 1) {
			t.Errorf("interface %d is in use, the second brings the packet a second later: verdict %d, %v", inUse, verdict, err)
		}
	}
}

// TestCopiesAtOnceAfterLong lets two processors receive copies of a packet that also came long
// ago: one of them is delivered.
func TestCopiesAtOnceAfterLong(t *testing.T) {
	s, first, second := twoWays(t, 0)
	if _, err := first.bring(); err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		age(t, s, time.Minute)
		var delivered atomic.Int32
		var both sync.WaitGroup
		for _, w := range []way{first, second} {
			both.Go(func() {
				if verdict, err := w.bring(); err == nil && verdict == redirected {
					delivered.Add(1)
				}
			})
		}
		both.Wait()
		if delivered.Load() != 1 {
			t.Fatalf("copies %d were delivered %d times", i, delivered.Load())
		}
	}
}
