#include "format/parquet/value_text.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "base/utf8.h"
#include "format/json_text.h"
#include "tensor/dtype.h"

namespace temper {
namespace {

__extension__ using WideInt = __int128;
__extension__ using WideUnsigned = unsigned __int128;

constexpr int64_t kSecondsOfDay = 86400;
// Days of 0001-01-01 and of 9999-12-31 since 1970-01-01: what Python's dates can be.
constexpr int64_t kFirstDay = -719162, kLastDay = 2932896;
constexpr int64_t kJulianEpoch = 2440588;  // the Julian day of 1970-01-01

int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

int64_t PowerOfTen(int digits) {
  int64_t power = 1;
  for (; digits > 0; --digits) power *= 10;
  return power;
}

// Source: H. Hinnant, chrono-Compatible Low-Level Date Algorithms, civil_from_days.
void AppendDay(int64_t day, std::string& out) {
  day += 719468;  // since 0000-03-01
  const int64_t era = FloorDivide(day, 146097);
  const int64_t of_era = day - era * 146097;
  const int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
  const int64_t month = (5 * of_year + 2) / 153;  // from March
  fmt::format_to(std::back_inserter(out), "{:04}-{:02}-{:02}", year + era * 400 + (month >= 10 ? 1 : 0),
                 month < 10 ? month + 3 : month - 9, of_year - (153 * month + 2) / 5 + 1);
}

// `fraction`: in units of 10^-digits seconds. As Python, whose fractions have 6 digits or none; 9 where they need them.
void AppendTime(int64_t second, int64_t fraction, int digits, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
  const int64_t nanoseconds = fraction * PowerOfTen(9 - digits);
  if (nanoseconds == 0) return;
  if (nanoseconds % 1000 == 0) {
    fmt::format_to(std::back_inserter(out), ".{:06}", nanoseconds / 1000);
  } else {
    fmt::format_to(std::back_inserter(out), ".{:09}", nanoseconds);
  }
}

void AppendTimestamp(int64_t day, int64_t second, int64_t fraction, const ParquetType& type, int digits,
                     std::string& out) {
  out += '"';
  AppendDay(day, out);
  out += 'T';
  AppendTime(second, fraction, digits, out);
  out += type.utc ? "+00:00\"" : "\"";
}

void AppendDecimal(WideInt value, int scale, std::string& out) {
  std::string digits;
  WideUnsigned left = value < 0 ? WideUnsigned{0} - static_cast<WideUnsigned>(value) : static_cast<WideUnsigned>(value);
  for (; left > 0 || digits.size() <= static_cast<size_t>(scale); left /= 10) {
    digits += static_cast<char>('0' + static_cast<int>(left % 10));
  }
  out += value < 0 ? "\"-" : "\"";
  for (size_t i = digits.size(); i > 0; --i) {
    if (i == static_cast<size_t>(scale)) out += '.';
    out += digits[i - 1];
  }
  out += '"';
}

void AppendBinary(size_t size, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{{\"binary\": {}}}", size);
}

}  // namespace

void AppendParquetInt(const ParquetType& type, int64_t value, std::string& out) {
  switch (type.meaning) {
    case ParquetMeaning::kBool:
      out += value != 0 ? "true" : "false";
      return;
    case ParquetMeaning::kNull:
      out += "null";
      return;
    case ParquetMeaning::kUnsigned:
      return AppendJsonUnsigned(
          type.storage == ParquetStorage::kInt32 ? static_cast<uint32_t>(value) : static_cast<uint64_t>(value), out);
    case ParquetMeaning::kDecimal:
      return AppendDecimal(value, type.scale, out);
    case ParquetMeaning::kDate:
      if (value < kFirstDay || value > kLastDay) break;
      out += '"';
      AppendDay(value, out);
      out += '"';
      return;
    case ParquetMeaning::kTime: {
      const int64_t unit = PowerOfTen(type.scale);
      if (value < 0 || value / unit >= kSecondsOfDay) break;
      out += '"';
      AppendTime(value / unit, value % unit, type.scale, out);
      out += '"';
      return;
    }
    case ParquetMeaning::kTimestamp: {
      const int64_t unit = PowerOfTen(type.scale);
      const int64_t second = FloorDivide(value, unit), day = FloorDivide(second, kSecondsOfDay);
      if (day < kFirstDay || day > kLastDay) break;
      return AppendTimestamp(day, second - day * kSecondsOfDay, value - second * unit, type, type.scale, out);
    }
    default:
      break;
  }
  AppendJsonInt(value, out);
}

void AppendParquetNumber(const ParquetType& type, double value, std::string& out) {
  if (type.meaning == ParquetMeaning::kNull) {
    out += "null";
  } else {
    AppendJsonDouble(value, out);
  }
}

void AppendParquetBytes(const ParquetType& type, std::string_view bytes, std::string& out) {
  switch (type.meaning) {
    case ParquetMeaning::kText:
      return AppendJsonString(bytes, out);
    case ParquetMeaning::kNull:
      out += "null";
      return;
    case ParquetMeaning::kHalf: {
      f16 half;
      std::memcpy(&half, bytes.data(), sizeof half);
      return AppendJsonDouble(ToFloat(half), out);
    }
    case ParquetMeaning::kUuid: {
      out += '"';
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
        fmt::format_to(std::back_inserter(out), "{:02x}", static_cast<uint8_t>(bytes[i]));
      }
      out += '"';
      return;
    }
    case ParquetMeaning::kDecimal: {
      if (bytes.empty() || bytes.size() > sizeof(WideInt)) return AppendBinary(bytes.size(), out);
      WideInt value = static_cast<int8_t>(bytes[0]);
      for (size_t i = 1; i < bytes.size(); ++i) value = value * 256 + static_cast<uint8_t>(bytes[i]);
      return AppendDecimal(value, type.scale, out);
    }
    case ParquetMeaning::kTimestamp: {  // INT96: nanoseconds of the day, Julian day
      int64_t nanoseconds = 0;
      int32_t julian = 0;
      std::memcpy(&nanoseconds, bytes.data(), sizeof nanoseconds);
      std::memcpy(&julian, bytes.data() + sizeof nanoseconds, sizeof julian);
      const int64_t unit = PowerOfTen(9), day = julian - kJulianEpoch;
      if (nanoseconds < 0 || nanoseconds / unit >= kSecondsOfDay || day < kFirstDay || day > kLastDay) break;
      return AppendTimestamp(day, nanoseconds / unit, nanoseconds % unit, type, 9, out);
    }
    default:
      if (utf8::IsValid(bytes)) return AppendJsonString(bytes, out);
  }
  AppendBinary(bytes.size(), out);
}

}  // namespace temper
