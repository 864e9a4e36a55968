package control

import (
	"slices"
	"sync"
)

// keepRecords is the number of records that an agent keeps for a controller that was away.
const keepRecords = 1024

// journal keeps the latest records, numbered from 1.
type journal[R any] struct {
	mu   sync.Mutex
	list []R
	seq  uint64
	wake chan struct{} // closed at the next record
}

func (j *journal[R]) add(x R) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	if len(j.list) >= keepRecords {
		j.list = slices.Delete(j.list, 0, keepRecords/4)
	}
	j.list = append(j.list, x)
	if j.wake != nil {
		close(j.wake)
		j.wake = nil
	}
}

// since returns the records after a number, and the last number.
func (j *journal[R]) since(seq uint64) ([]R, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := min(uint64(len(j.list)), j.seq-seq)
	return slices.Clone(j.list[uint64(len(j.list))-n:]), j.seq
}

// changed returns a channel that closes at the next record.
func (j *journal[R]) changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wake == nil {
		j.wake = make(chan struct{})
	}
	return j.wake
}
