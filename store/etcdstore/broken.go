package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"go.uber.org/zap/zapcore"
)

// broken is where etcd ends when it cannot go on. It would end the process in the middle
// of whatever the rest of it does; so its goroutine is left where it is, holding its
// locks, and the store fails with a sentence that says why.
type broken struct {
	dir   string
	ctx   context.Context //nolint:containedctx // its cause is why etcd has broken
	cause context.CancelCauseFunc
}

func newBroken(dir string) *broken {
	b := &broken{dir: dir}
	b.ctx, b.cause = context.WithCancelCause(context.Background())
	return b
}

// OnWrite implements zapcore.CheckWriteHook for what etcd logs as fatal. It does not
// return.
func (b *broken) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New("it gives no reason")
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok {
			err = cause
		}
	}
	b.cause(fmt.Errorf("etcdstore: the store in %s has failed: %s: %w%s", b.dir, e.Message, err, advice(err)))
	select {}
}

// advice is what would help.
func advice(err error) string {
	switch {
	case noRoom(err):
		return "; make room on its file system and start the controller again"
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS):
		return "; look after the disk: the kernel's log says more"
	}
	return "; \"sluice store check\" looks through it"
}
