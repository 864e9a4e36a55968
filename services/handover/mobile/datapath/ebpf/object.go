package ebpf

import (
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

// add adds the counters of another processor.
func (c *datapathCounters) add(o *datapathCounters) {
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

// shared holds what all programs of a datapath share: the maps, and the program of the VNI.
type shared struct {
	spec *ebpf.CollectionSpec
	send *ebpf.Program
	maps datapathMaps
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
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, unsupported("raising the limit of locked memory, which needs CAP_SYS_RESOURCE", err)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return nil, unsupported("eBPF programs of tc (CONFIG_BPF_SYSCALL, CAP_BPF and CAP_NET_ADMIN)", err)
	}
	spec, err := loadDatapath()
	if err != nil {
		return nil, fmt.Errorf("the embedded programs: %w", err)
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	s := &shared{spec: spec}
	if err := errors.Join(
		spec.Variables[datapathVarVniIndex].Set(uint32(vniIndex)),
		spec.Variables[datapathVarVniMac].Set(vniMAC),
		spec.Variables[datapathVarSeed].Set(binary.NativeEndian.Uint64(seed[:])),
	); err != nil {
		return nil, fmt.Errorf("the embedded programs: %w", err)
	}
	var loaded struct {
		datapathMaps
		Send *ebpf.Program `ebpf:"sluice_vni_tx"`
	}
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return nil, unsupported("loading the program of the virtual interface", err)
	}
	s.send, s.maps = loaded.Send, loaded.datapathMaps
	return s, nil
}

// loadReceiver loads the program of one interface.
func (s *shared) loadReceiver(i datapath.Interface, slot uint32) (*ebpf.Program, error) {
	spec := s.spec.Copy()
	if err := errors.Join(
		spec.Variables[datapathVarNicMac].Set(i.MAC),
		spec.Variables[datapathVarNicSlot].Set(slot),
	); err != nil {
		return nil, fmt.Errorf("the embedded programs: %w", err)
	}
	var loaded struct {
		Receive *ebpf.Program `ebpf:"sluice_nic_rx"`
	}
	err := spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{
			datapathMapChoices: s.maps.Choices, datapathMapStats: s.maps.Stats, datapathMapSeen: s.maps.Seen,
			datapathMapTails: s.maps.Tails, datapathMapScratch: s.maps.Scratch,
		},
	})
	if err != nil {
		return nil, unsupported("loading the program of interface "+i.Name, err)
	}
	return loaded.Receive, nil
}

// close closes the program and the maps.
func (s *shared) close() {
	_ = s.send.Close()
	_ = s.maps.Close()
}

// counters returns the sum of a slot's counters over all processors.
func (s *shared) counters(slot uint32) (datapathCounters, error) {
	var each []datapathCounters
	var sum datapathCounters
	if err := s.maps.Stats.Lookup(slot, &each); err != nil {
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
	return s.maps.Stats.Put(slot, make([]datapathCounters, n))
}

// unsupported returns an error that names the feature that the kernel lacks.
func unsupported(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", datapath.ErrUnsupported, what, err)
}
