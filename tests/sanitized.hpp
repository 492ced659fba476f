// SPDX-License-Identifier: Apache-2.0
// SANITIZED: a sanitizer's own memory and time are in no plan and no claim.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

// A bound on seconds times this: a sanitized program takes up to ten times as long.
#ifdef SANITIZED
constexpr double patience = 10;
#else
constexpr double patience = 1;
#endif
