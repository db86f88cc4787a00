// Package fieldrules checks protobuf messages against the protovalidate rules of their fields. It knows
// the rules that the API uses, and refuses to compile others, so that no rule goes unchecked. Package
// protovalidate itself compiles rules as programs of a language, which makes a binary larger by
// megabytes; tests compare the two.
package fieldrules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrRule: a field has a rule that this package does not know.
var ErrRule = errors.New("validation rule not supported")

// ViolationError is the error of a message with a field that breaks a rule.
type ViolationError struct {
	// Field is the path of the field, as payload.fields[0].
	Field string
	// Rule is the rule's name in protovalidate, as string.min_len.
	Rule string
	// Text says what the field must be.
	Text string
}

func (v *ViolationError) Error() string { return v.Field + ": " + v.Text }

// under returns the violation of a field below another one.
func (v *ViolationError) under(path string) *ViolationError {
	if v.Field != "" {
		path += "." + v.Field
	}
	return &ViolationError{Field: path, Rule: v.Rule, Text: v.Text}
}

// Rules are the compiled rules of messages. They are safe for concurrent use.
type Rules struct {
	messages map[protoreflect.FullName]*message
	skipped  map[protoreflect.FullName]bool
}

// message has the rules of a message.
type message struct {
	oneofs []protoreflect.OneofDescriptor // those that must have a field
	fields []field
}

// field has the rules of a field.
type field struct {
	protoreflect.FieldDescriptor
	required bool
	whole    []check  // of the value, of the list or of the map
	elements []check  // of each element of a list, of each value of a map
	nested   *message // of a message, of each message of a list or map; nil if there is none
}

// check returns the violation of a value, without its path, or nil.
type check func(protoreflect.Value) *ViolationError

// Compile compiles the rules of the messages, and of the messages of the same packages in their
// fields. Skipped fields are not checked, nor what they contain. It returns ErrRule.
func Compile(messages []protoreflect.MessageDescriptor, skipped ...protoreflect.FullName) (*Rules, error) {
	r := &Rules{messages: map[protoreflect.FullName]*message{}, skipped: map[protoreflect.FullName]bool{}}
	for _, name := range skipped {
		r.skipped[name] = true
	}
	for _, m := range messages {
		if _, err := r.compile(m); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Rules) compile(d protoreflect.MessageDescriptor) (*message, error) {
	if m, ok := r.messages[d.FullName()]; ok {
		return m, nil
	}
	m := &message{}
	r.messages[d.FullName()] = m // before its fields, as a message may contain itself
	if proto.HasExtension(d.Options(), validate.E_Message) {
		return nil, fmt.Errorf("%w: %s has rules of the whole message", ErrRule, d.FullName())
	}
	for i := range d.Oneofs().Len() {
		one := d.Oneofs().Get(i)
		if rules, ok := proto.GetExtension(one.Options(), validate.E_Oneof).(*validate.OneofRules); ok && rules.GetRequired() {
			m.oneofs = append(m.oneofs, one)
		}
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if r.skipped[fd.FullName()] {
			continue
		}
		f, err := r.compileField(fd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fd.FullName(), err)
		}
		if f.required || f.whole != nil || f.elements != nil || f.nested != nil {
			m.fields = append(m.fields, f)
		}
	}
	return m, nil
}

func (r *Rules) compileField(fd protoreflect.FieldDescriptor) (field, error) {
	f := field{FieldDescriptor: fd}
	if rules, ok := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules); ok && rules != nil {
		if err := f.add(rules.ProtoReflect()); err != nil {
			return field{}, err
		}
	}
	of := fd.Message()
	if fd.IsMap() {
		if fd.MapKey().Kind() != protoreflect.StringKind {
			return field{}, fmt.Errorf("%w: the keys of the map are not strings", ErrRule)
		}
		of = fd.MapValue().Message()
	}
	if of == nil || of.ParentFile().Package() != fd.ParentFile().Package() {
		return f, nil
	}
	var err error
	f.nested, err = r.compile(of)
	return f, err
}

// add adds the rules of a FieldRules message.
func (f *field) add(rules protoreflect.Message) (err error) {
	for kind, value := range rules.Range {
		var problem error
		switch kind.Name() {
		case "required":
			f.required = value.Bool()
		case "repeated":
			f.whole, f.elements, problem = listChecks(value.Message(), "items")
		case "map":
			f.whole, f.elements, problem = listChecks(value.Message(), "values")
		default:
			f.whole, problem = valueChecks(kind, value, f.FieldDescriptor)
		}
		err = errors.Join(err, problem)
	}
	return err
}

// Validate returns the first *ViolationError of a message, or nil. It panics if the message was not compiled.
func (r *Rules) Validate(m proto.Message) error {
	of := m.ProtoReflect()
	rules, ok := r.messages[of.Descriptor().FullName()]
	if !ok {
		panic(fmt.Sprintf("fieldrules: the rules of %s were not compiled", of.Descriptor().FullName()))
	}
	if v := rules.check(of); v != nil {
		return v
	}
	return nil
}

func (m *message) check(of protoreflect.Message) *ViolationError {
	for _, one := range m.oneofs {
		if of.WhichOneof(one) == nil {
			return &ViolationError{string(one.Name()), "required", "exactly one field is required in oneof"}
		}
	}
	for i := range m.fields {
		if v := m.fields[i].check(of); v != nil {
			return v
		}
	}
	return nil
}

func (f *field) check(of protoreflect.Message) *ViolationError {
	if !of.Has(f.FieldDescriptor) {
		switch {
		case f.required:
			return &ViolationError{string(f.Name()), "required", "value is required"}
		case f.HasPresence():
			return nil
		}
	}
	value := of.Get(f.FieldDescriptor)
	if v := first(f.whole, value); v != nil {
		return v.under(string(f.Name()))
	}
	switch {
	case f.elements == nil && f.nested == nil:
		return nil
	case f.IsList():
		return f.checkList(value.List())
	case f.IsMap():
		return f.checkMap(value.Map())
	default:
		return f.checkElement(value, "")
	}
}

func (f *field) checkList(list protoreflect.List) *ViolationError {
	for i := range list.Len() {
		if v := f.checkElement(list.Get(i), "["+strconv.Itoa(i)+"]"); v != nil {
			return v
		}
	}
	return nil
}

func (f *field) checkMap(entries protoreflect.Map) (v *ViolationError) {
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		v = f.checkElement(value, "["+strconv.Quote(key.String())+"]")
		return v == nil
	})
	return v
}

// checkElement checks a message, or an element of a list or map, which subscript names.
func (f *field) checkElement(value protoreflect.Value, subscript string) *ViolationError {
	v := first(f.elements, value)
	if v == nil && f.nested != nil {
		v = f.nested.check(value.Message())
	}
	if v == nil {
		return nil
	}
	return v.under(string(f.Name()) + subscript)
}

func first(checks []check, value protoreflect.Value) *ViolationError {
	for _, c := range checks {
		if v := c(value); v != nil {
			return v
		}
	}
	return nil
}

// unknown returns the error of rules without a check.
func unknown(rules ...string) error {
	if len(rules) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRule, strings.Join(rules, ", "))
}
