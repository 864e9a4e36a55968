package record

import (
	"crypto/ed25519"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// SignHello returns a signed hello of the name that belongs to a private key, at an Ethernet
// address. The number must be higher than in any hello before. The challenge is the number that the
// hello answers, or zero.
func SignHello(key ed25519.PrivateKey, number uint64, mac [6]byte, challenge uint64) frame.Hello {
	h := frame.Hello{Key: [ed25519.PublicKeySize]byte(key.Public().(ed25519.PublicKey)), Number: number, MAC: mac, Challenge: challenge}
	h.Signature = [ed25519.SignatureSize]byte(ed25519.Sign(key, h.Signed()))
	return h
}

// VerifyHello verifies the signature of a hello and returns its name. The error wraps ErrSignature.
func VerifyHello(h *frame.Hello) (frame.GUID, error) {
	name := NameOf(h.Key[:])
	if !ed25519.Verify(h.Key[:], h.Signed(), h.Signature[:]) {
		return frame.GUID{}, fmt.Errorf("hello of %v: %w", name, ErrSignature)
	}
	return name, nil
}
