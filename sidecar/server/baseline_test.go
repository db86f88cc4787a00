package server_test

import (
	"os"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestClientsOfTheBaseline calls every RPC of the last release's API with its own
// messages: a client that was not upgraded with the sidecar is answered as before.
func TestClientsOfTheBaseline(t *testing.T) {
	b, err := os.ReadFile("../../proto/baseline.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	w := start(t)
	called := 0
	files.RangeFilesByPackage("likeness.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for methods, j := f.Services().Get(i).Methods(), 0; j < methods.Len(); j++ {
				m := methods.Get(j)
				r, ok := rules()[string(m.FullName())]
				if !ok {
					t.Errorf("the API has no %s any more", m.FullName())
					continue
				}
				now, err := proto.Marshal(r.request("things"))
				if err != nil {
					t.Fatal(err)
				}
				request, answer := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
				if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(now, request); err != nil {
					t.Fatal(err)
				}
				name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
				old := w.conn.Invoke(t.Context(), name, request, answer)
				today := w.conn.Invoke(t.Context(), name, r.request("things"), dynamicpb.NewMessage(m.Output()))
				if status.Code(old) != status.Code(today) {
					t.Errorf("%s: %v to a client of the baseline, %v to one of today", m.FullName(), old, today)
				}
				called++
			}
		}
		return true
	})
	if called < 9 {
		t.Errorf("%d RPCs in the baseline", called)
	}
}
