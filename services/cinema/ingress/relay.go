package ingress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	// gatherTime is how long the gateway waits for the second of a stream's media (picture and
	// sound) before it sends the first alone. If the second comes later, it is added then.
	gatherTime = 2 * time.Second
	// mediumTimeout is how long a picture may be missing while sound comes before viewers get a
	// black one.
	mediumTimeout = 5 * time.Second
	// maxBacklog bounds the bytes of a stream that are kept until it is known which media and which
	// picture the stream has.
	maxBacklog = 8 << 20
	// examinePictures is how many pictures of a stream are gathered from its first key frame on, so that
	// their size and rate can be examined, but for at most examineTime.
	examinePictures, examineTime = 6, 200 * time.Millisecond
)

// relay has ffmpeg read a producer's stream. It starts another ffmpeg whenever the stream has
// another set of media than before.
type relay struct {
	ffmpeg   *ffmpegSource
	producer *producer

	process *process // nil before the first ffmpeg is started
	reads   mediaSet // what the process reads
	maps    [numMedia]string
	heardAt [numMedia]time.Time
	since   time.Time // when the first medium was heard
	// changedAt is when the stream's media began to differ from those that the process reads; zero
	// if they do not differ.
	changedAt time.Time
	// picture is the stream's picture; the zero value means that it is not known. examined reports
	// whether it was examined from a key frame on.
	picture  inputPicture
	examined bool
	// keyAt is when the first key frame of the backlog arrived; zero if none has.
	keyAt time.Time
	// pictures counts the pictures that have begun from that key frame on.
	pictures int
	backlog  []byte
	out      []byte
}

// run reads the stream until it or ctx ends, and returns why it has ended.
func (r *relay) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = r.producer.stream.Close() })
	defer stop()
	defer func() {
		if r.process != nil {
			_ = r.process.finish()
		}
	}()
	for {
		units, err := r.producer.stream.read(time.Now().Add(processTimeout))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errProcessSilent
		}
		if err == nil {
			err = r.push(ctx, units, time.Now())
		}
		if err != nil {
			return r.producer.why(err)
		}
	}
}

// push passes the units that the present ffmpeg reads on to it. If the stream's media have changed, it
// starts another ffmpeg first.
func (r *relay) push(ctx context.Context, units []unit, now time.Time) error {
	r.out = r.out[:0]
	for _, u := range units {
		if u.medium != noMedium && !u.setup {
			r.hear(u.medium, now)
		}
		if r.process == nil {
			if err := r.gather(ctx, u, now); err != nil {
				return err
			}
			continue
		}
		if r.outdated(u, now) {
			if err := r.flush(); err != nil {
				return err
			}
			has := r.present(now)
			if has[picture] && !r.examined {
				r.stop(now)
				if err := r.gather(ctx, u, now); err != nil {
					return err
				}
				continue
			}
			if err := r.restart(ctx, has); err != nil {
				return err
			}
		}
		if u.medium == noMedium || r.reads[u.medium] {
			r.out = append(r.out, u.data...)
		}
	}
	if r.since.IsZero() {
		return nil
	}
	return r.flush()
}

// hear records that a unit of a medium has arrived.
func (r *relay) hear(m medium, now time.Time) {
	if r.since.IsZero() {
		r.since = now
	}
	r.heardAt[m] = now
	r.producer.heard(now)
}

// gather keeps a unit until it is known which media and which picture the stream has, and starts ffmpeg
// then.
func (r *relay) gather(ctx context.Context, u unit, now time.Time) error {
	if r.since.IsZero() { // neither picture nor sound has arrived yet
		return nil
	}
	if u.medium == picture && u.key && r.keyAt.IsZero() {
		r.keyAt, r.pictures = now, 0
		r.backlog = r.backlog[:0] // what came before cannot be shown, and its sound would be late
	}
	if u.medium == picture && u.begins {
		r.pictures++
	}
	if !u.setup && u.medium != noMedium {
		r.backlog = append(r.backlog, u.data...)
	}
	has := r.present(now)
	enough := !r.keyAt.IsZero() && (r.pictures > examinePictures || now.Sub(r.keyAt) >= examineTime)
	complete := has[picture] && has[sound] && enough
	if !complete && now.Sub(r.since) < gatherTime && len(r.backlog) < maxBacklog {
		return nil
	}
	if has[picture] {
		format, pictureMap, _ := r.producer.stream.input()
		r.examined = !r.keyAt.IsZero()
		r.picture = r.ffmpeg.probePicture(ctx, slices.Concat(r.producer.stream.header(has), r.backlog), format, pictureMap)
	}
	if err := r.restart(ctx, has); err != nil {
		return err
	}
	r.out = append(r.out, r.backlog...)
	r.backlog, r.keyAt = nil, time.Time{}
	return nil
}

// stop ends the present ffmpeg. What the stream sends from now on is gathered until it is known which
// picture it has.
func (r *relay) stop(now time.Time) {
	_ = r.process.finish()
	r.process, r.changedAt, r.since = nil, time.Time{}, now
}

// present returns the media that the stream has now. Sound that has ended still counts as present,
// because ffmpeg goes on without it, and it may come back.
func (r *relay) present(now time.Time) (has mediaSet) {
	has[sound] = !r.heardAt[sound].IsZero()
	has[picture] = !r.heardAt[picture].IsZero() && (!has[sound] || now.Sub(r.heardAt[picture]) < mediumTimeout)
	return has
}

// outdated reports whether another ffmpeg is to be started before the unit u is written, because the
// stream's media have changed, or because its first key frame comes only now. If the new media include
// pictures, it returns false until u is one with which a decoder can begin, but for at most gatherTime.
func (r *relay) outdated(u unit, now time.Time) bool {
	_, pictureMap, soundMap := r.producer.stream.input()
	maps := [numMedia]string{pictureMap, soundMap}
	has := r.present(now)
	changed := has != r.reads || has[picture] && !r.examined && u.medium == picture && u.key
	for m := range maps {
		changed = changed || has[m] && maps[m] != r.maps[m]
	}
	if !changed {
		r.changedAt = time.Time{}
		return false
	}
	if r.changedAt.IsZero() {
		r.changedAt = now
	}
	return !has[picture] || u.medium == picture && u.key || now.Sub(r.changedAt) >= gatherTime
}

// restart ends the present ffmpeg, and starts another one that reads the given media.
func (r *relay) restart(ctx context.Context, has mediaSet) error {
	if r.process != nil {
		_ = r.process.finish()
		r.process = nil
	}
	format, pictureMap, soundMap := r.producer.stream.input()
	if !has[picture] {
		r.picture, r.examined = inputPicture{}, false // it may be another one when it comes back
	}
	properties := sourceProperties{
		silent: !has[sound], blind: !has[picture], picture: r.picture, piped: format, pictureMap: pictureMap, soundMap: soundMap,
	}
	p, err := r.ffmpeg.start(ctx, properties)
	if err != nil {
		return err
	}
	r.process, r.reads, r.maps, r.changedAt = p, has, [numMedia]string{pictureMap, soundMap}, time.Time{}
	r.out = append(r.out[:0], r.producer.stream.header(has)...)
	return nil
}

// flush writes r.out to ffmpeg.
func (r *relay) flush() error {
	if r.process == nil || len(r.out) == 0 {
		return nil
	}
	err := r.process.write(r.out)
	r.out = r.out[:0]
	if err != nil {
		return fmt.Errorf("its stream cannot be read: %w", r.process.finish())
	}
	return nil
}
