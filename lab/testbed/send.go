package testbed

import (
	"context"
	"time"
)

// SendFrames sends frames by an interface of a host, one each interval, until ctx ends. next
// appends the n-th frame. It returns the number of frames that were sent.
func SendFrames(ctx context.Context, host Inside, name string, interval time.Duration, next func(b []byte, n uint64) []byte) (sent uint64, err error) {
	f, err := openFrames(host, name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	p := newPace(interval)
	defer p.stop()
	for frame := []byte(nil); p.wait(ctx); sent++ {
		frame = next(frame[:0], sent)
		if err := f.send(frame); err != nil {
			return sent, err
		}
	}
	return sent, nil
}
