/* class_proxy_protocol.c - Polyphony::HTTP::ProxyProtocol.parse */
#include "polyphony_http.h"
#include "proxy_protocol.h"

/* [length, address, port] of a header, [length, nil, nil] of one that tells nothing; nil if there is more to come,
 * false for what is none. */
static VALUE ProxyProtocol_parse(VALUE self, VALUE bytes) {
  struct proxy_header header;

  StringValue(bytes);
  enum proxy_result result = proxy_parse((const unsigned char *)RSTRING_PTR(bytes), (size_t)RSTRING_LEN(bytes), &header);
  RB_GC_GUARD(bytes);
  if (result == PROXY_MORE) return Qnil;
  if (result == PROXY_BAD) return Qfalse;
  if (!header.known) return rb_ary_new_from_args(3, SIZET2NUM(header.length), Qnil, Qnil);
  return rb_ary_new_from_args(3, SIZET2NUM(header.length), rb_usascii_str_new_cstr(header.address), UINT2NUM(header.port));
}

void Init_proxy_protocol(void) {
  VALUE module = rb_define_module_under(mHTTP, "ProxyProtocol");

  rb_define_singleton_method(module, "parse", ProxyProtocol_parse, 1);
}
