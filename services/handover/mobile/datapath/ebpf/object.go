package ebpf

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

//go:generate bpf/generate.sh

// object is the compiled bpf/datapath.c.
//
//go:embed bpf/datapath.o
var object []byte

// choice is struct choice of bpf/datapath.c.
type choice struct {
	Send    uint32
	Slot    uint32
	Receive uint32
	MAC     openflow.MAC
	Merge   uint8
	Pad     uint8
}

// counters is struct counters of bpf/datapath.c.
type counters struct {
	Sent, SentBytes, Received, ReceivedBytes uint64
	Inactive, Foreign, Doubled               uint64
	Heard, HeardAt                           uint64
}

// add adds the counters of another processor.
func (c *counters) add(o *counters) {
	c.Sent += o.Sent
	c.SentBytes += o.SentBytes
	c.Received += o.Received
	c.ReceivedBytes += o.ReceivedBytes
	c.Inactive += o.Inactive
	c.Foreign += o.Foreign
	c.Doubled += o.Doubled
	c.Heard += o.Heard
	c.HeardAt = max(c.HeardAt, o.HeardAt)
}

// unsentSlot is the slot of the counters of frames for which there was no interface.
const unsentSlot = datapath.MaxInterfaces

// shared holds what all programs of a datapath share.
type shared struct {
	spec *ebpf.CollectionSpec
	objects
}

// objects are loaded into the kernel.
type objects struct {
	Send    *ebpf.Program `ebpf:"sluice_vni_tx"`
	Choices *ebpf.Map     `ebpf:"choices"`
	Stats   *ebpf.Map     `ebpf:"stats"`
	Seen    *ebpf.Map     `ebpf:"seen"`
	Tails   *ebpf.Map     `ebpf:"tails"`
	Scratch *ebpf.Map     `ebpf:"scratch"`
}

// Probe returns an error if this kernel cannot load the programs. It changes nothing. The error
// wraps [datapath.ErrUnsupported] and says what is missing.
func Probe() error {
	s, err := loadShared(1, openflow.MAC{2})
	if err != nil {
		return err
	}
	defer s.close()
	receive, err := s.loadReceiver(datapath.Interface{MAC: openflow.MAC{4}}, 0)
	if err != nil {
		return err
	}
	return receive.Close()
}

// loadShared loads the maps and the program of the VNI.
func loadShared(vniIndex int, vniMAC openflow.MAC) (*shared, error) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, fmt.Errorf("%w: the programs are compiled for little-endian machines", datapath.ErrUnsupported)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, unsupported("raising the limit of locked memory, which needs CAP_SYS_RESOURCE", err)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return nil, unsupported("eBPF programs of tc (CONFIG_BPF_SYSCALL, CAP_BPF and CAP_NET_ADMIN)", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("the embedded programs: %w", err)
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	s := &shared{spec: spec}
	if err := errors.Join(
		spec.Variables["vni_index"].Set(uint32(vniIndex)),
		spec.Variables["vni_mac"].Set(vniMAC),
		spec.Variables["seed"].Set(binary.NativeEndian.Uint64(seed[:])),
	); err != nil {
		return nil, fmt.Errorf("the embedded programs: %w", err)
	}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, unsupported("loading the program of the virtual interface", err)
	}
	return s, nil
}

// loadReceiver loads the program of one interface.
func (s *shared) loadReceiver(i datapath.Interface, slot uint32) (*ebpf.Program, error) {
	spec := s.spec.Copy()
	if err := errors.Join(
		spec.Variables["nic_mac"].Set(i.MAC),
		spec.Variables["nic_slot"].Set(slot),
	); err != nil {
		return nil, fmt.Errorf("the embedded programs: %w", err)
	}
	var loaded struct {
		Receive *ebpf.Program `ebpf:"sluice_nic_rx"`
	}
	err := spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"choices": s.Choices, "stats": s.Stats, "seen": s.Seen, "tails": s.Tails, "scratch": s.Scratch},
	})
	if err != nil {
		return nil, unsupported("loading the program of interface "+i.Name, err)
	}
	return loaded.Receive, nil
}

// close closes the program and the maps.
func (s *shared) close() {
	_ = s.Send.Close()
	_ = s.Choices.Close()
	_ = s.Stats.Close()
	_ = s.Seen.Close()
	_ = s.Tails.Close()
	_ = s.Scratch.Close()
}

// counters returns the sum of a slot's counters over all processors.
func (s *shared) counters(slot uint32) (counters, error) {
	var each []counters
	var sum counters
	if err := s.Stats.Lookup(slot, &each); err != nil {
		return sum, fmt.Errorf("reading counters: %w", err)
	}
	for i := range each {
		sum.add(&each[i])
	}
	return sum, nil
}

// clear sets a slot's counters to zero, for the next interface that uses it.
func (s *shared) clear(slot uint32) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	return s.Stats.Put(slot, make([]counters, n))
}

// unsupported returns an error that names the feature that the kernel lacks.
func unsupported(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", datapath.ErrUnsupported, what, err)
}
